"""The operator's errors.

OperatorError
├── ApiError          an answer of the API server other than success
│   ├── Conflict      409: read again and look again
│   ├── NotFound      404
│   ├── Gone          410: the watch's resourceVersion is too old, list again
│   ├── Refused       400, 403, 422: the object will not be taken as it is
│   └── Unavailable   no connection, timeout, 429 or 5xx: try again later
│       ├── Failing   500 about some objects, after all others were written
│       └── Silent    a watch without a byte for too long
└── NotReadable       an object or an answer that does not have the expected shape
"""


class OperatorError(Exception):
    """Base of all errors of the operator."""


class ApiError(OperatorError):
    """The API server answered `status` (0: no answer at all)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Conflict(ApiError):
    """409: somebody else wrote in between."""


class NotFound(ApiError):
    """404."""


class Gone(ApiError):
    """410: list again."""


class Refused(ApiError):
    """The object is not taken as it is: invalid, forbidden, or denied by an admission check."""


class Unavailable(ApiError):
    """No connection, a timeout, 429 or 5xx."""


class Failing(Unavailable):
    """The server works and fails at some objects: an admission webhook that is down, mostly."""


class Silent(Unavailable):
    """A watch that says nothing: a dead connection, or nothing to say."""


class NotReadable(OperatorError):
    """An object or an answer does not have the expected shape."""
