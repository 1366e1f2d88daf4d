"""What can go wrong for a person at the keyboard, each with its exit code.

`CliError` and below are raised anywhere in the cli; `__main__` prints the
message to stderr and exits with the code.
"""

from typing import ClassVar


class CliError(Exception):
    """The API server can't be used as configured, or refuses; exit code 1."""

    exit_code: ClassVar[int] = 1


class Unreachable(CliError):
    """No answer from the API server for now; `status --watch` goes on after it."""


class NotFound(CliError):
    """The resource, or the whole resource type, is not there; exit code 3."""

    exit_code: ClassVar[int] = 3


class Refused(CliError):
    """The request makes no sense in the present state; nothing was written; exit code 4."""

    exit_code: ClassVar[int] = 4


class TimedOut(CliError):
    """The request was written, but the wanted state was not seen in time; exit code 5."""

    exit_code: ClassVar[int] = 5
