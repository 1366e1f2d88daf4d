"""PID 1 of the `agent` container: starts the agent, and starts it again when it dies.

A pod is not ready while one of its containers is not running, so a dead agent
would take a serving Envoy out of its Service. As a child it is back before a
readiness probe has failed often enough. Only the standard library is imported:
this process costs next to nothing. Run as `python -m speculative_gateway keep`.
"""

import logging
import os
import signal
import sys
import time

_log = logging.getLogger("speculative_gateway.keep")

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
HEALTHY_SECONDS = 5.0
"""A life shorter than this counts as a failed start."""
PAUSE_SECONDS = 1.0
"""After a failed start, so that an agent that can't start does not spin."""


def main(command: list[str]) -> int:
    """Keeps `command` running until SIGTERM or SIGINT; returns its last exit status."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    pid, started_at = _start(command), time.monotonic()
    stopping = False
    while True:
        number = signal.sigwait(SIGNALS)
        if number != signal.SIGCHLD:
            stopping = True
            os.kill(pid, signal.SIGTERM)
            continue
        status = _reaped(pid)
        if status is None:
            continue
        if stopping:
            return max(0, status)
        _log.warning("the agent ended with status %d; it is started again", status)
        pause = PAUSE_SECONDS if time.monotonic() - started_at < HEALTHY_SECONDS else 0.0
        # A stop must not wait for the pause.
        if signal.sigtimedwait(SIGNALS - {signal.SIGCHLD}, pause) is not None:
            return 0
        pid, started_at = _start(command), time.monotonic()


def _start(command: list[str]) -> int:
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-m", "speculative_gateway", *command],
        os.environ,
        setsigmask=[],
    )


def _reaped(pid: int) -> int | None:
    """Exit status of the agent if it ended (negative: the signal); reaps every orphan."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if ended == 0:
            return found
        if ended == pid:
            found = os.waitstatus_to_exitcode(status)
