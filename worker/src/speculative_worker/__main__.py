"""`python -m speculative_worker run | follow | preflight | download | simulate`.

`run` is the worker, PID 1 of a pod, and `follow` that of a group's pods but its leader;
`preflight` and `download` check and fetch its models in a Job before there is one; `simulate`
is the simulated engine alone, which both start when the configuration asks for it.
"""

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

    from speculative_worker.settings import Settings


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number if number != signal.SIGTERM else 0)


def main() -> int:
    """The command; its exit code."""
    # PID 1 has no default for SIGTERM: without a handler it would be lost during the imports.
    signal.signal(signal.SIGTERM, _leave)
    commands = {
        "run": _run,
        "follow": _follow,
        "preflight": _preflight,
        "download": _download,
        "simulate": _simulate,
    }
    if sys.argv[1:] not in [[name] for name in commands]:
        _explain(list(commands))
    return commands[sys.argv[1]]()


def _explain(commands: list[str]) -> NoReturn:
    # Only for people: a simulated engine starts without the half MB that argparse takes.
    import argparse

    parser = argparse.ArgumentParser(prog="speculative-worker", description=__doc__)
    parser.add_argument("command", choices=commands)
    parser.parse_args()
    parser.error("one command and nothing else")


def _run() -> int:
    import asyncio

    from speculative_worker.supervisor import run

    settings = _settings()
    if settings is None:
        return 2
    return _end(_with_last_words(lambda: asyncio.run(run(settings)), settings))


def _end(code: int) -> NoReturn:
    """Without the interpreter's own end, which waits for every thread.

    A library's may have a download in hand, and the kubelet would kill us before that is done.
    """
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _follow() -> int:
    import asyncio

    from speculative_worker.follower import follow

    settings = _settings()
    return asyncio.run(follow(settings)) if settings is not None else 2


def _preflight() -> int:
    from speculative_worker.checking import run_check

    settings = _settings()
    return _with_last_words(lambda: run_check(settings), settings) if settings is not None else 2


def _download() -> int:
    from speculative_worker.fetching import run_download

    settings = _settings()
    return _with_last_words(lambda: run_download(settings), settings) if settings is not None else 2


def _with_last_words(work: "Callable[[], int]", settings: "Settings") -> int:
    """Does the work; what nobody foresaw becomes last words, too, and not only a traceback."""
    from speculative_api.conditions import WorkerReason
    from speculative_worker import termination
    from speculative_worker.errors import WorkerFailure

    try:
        return work()
    except Exception as error:  # noqa: BLE001 (what nobody foresaw has no type)
        import traceback

        traceback.print_exc()
        detail = f"the worker itself failed: {type(error).__name__}: {error}"
        failure = WorkerFailure(WorkerReason.ENGINE_CRASHED, detail, retryable=True)
        text = termination.message(failure, secrets=settings.secrets)
        termination.write(text, settings.termination_path)
        return 1


def _settings() -> "Settings | None":
    """None, with the last words written, where the environment does not describe a worker."""
    from speculative_api.conditions import WorkerReason
    from speculative_worker import termination
    from speculative_worker.errors import WorkerFailure
    from speculative_worker.settings import SettingsError, process_environment, settings_from

    environment = process_environment()
    try:
        return settings_from(environment)
    except SettingsError as error:
        failure = WorkerFailure(WorkerReason.INVALID_ARGUMENTS, str(error), retryable=False)
        print(failure, file=sys.stderr)
        path = environment.get("TERMINATION_PATH", termination.TERMINATION_PATH)
        termination.write(termination.message(failure), path)
        return None


def _simulate() -> int:
    import os

    if not os.environ.get("ENGINE_TLS_FOLDER"):
        # asyncio does without where it cannot be imported: 1.2 MB less.
        sys.modules["ssl"] = None  # type: ignore[assignment]
    from speculative_worker.simulate.server import simulate

    # Not through `settings`: pydantic alone would double what a simulated engine costs.
    return simulate(os.environ)


if __name__ == "__main__":
    sys.exit(main())
