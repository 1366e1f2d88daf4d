"""Edge: the engine's certificate, checked before the engine sees it, and again when it is renewed.

In: the mounted Secret. Out: a folder of our own with plain files, which the
engine is given. vLLM watches those for changes (`--enable-ssl-refresh`), which
a mounted Secret's links would defeat: the kubelet swaps a folder and changes no
file. The folder is memory, readable by this container's user only.
"""

import asyncio
import shutil
import ssl
import tempfile
from pathlib import Path
from typing import Final

from speculative_api.conditions import WorkerReason
from speculative_api.worker import EngineTls
from speculative_worker.errors import WorkerFailure
from speculative_worker.log import log

KEY: Final = "tls.key"
CERTIFICATE: Final = "tls.crt"
AUTHORITY: Final = "ca.crt"
LOOK_SECONDS: Final = 5.0
"""Between looks at the mounted Secret, which the kubelet updates about once a minute."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 (the pod's own memory volume)
_HANDSHAKE_ROUNDS: Final = 8


class Certificate:
    """The certificate of one engine."""

    def __init__(self, tls: EngineTls) -> None:
        """Takes the mounted files.

        Raises `WorkerFailure` (InvalidArguments, not retryable) where they would not do.
        """
        self._mounted = Path(tls.directory)
        self._server_name = tls.server_name
        if found := problem(self._mounted, tls.server_name):
            raise WorkerFailure(
                WorkerReason.INVALID_ARGUMENTS,
                f"engine.tls: {found}; correct the Secret, then retry the revision",
                retryable=False,
            )
        where = _MEMORY if _MEMORY.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="engine-tls-", dir=where))
        """What the engine is given."""
        self._said = ""
        self._copy()

    async def follow(self) -> None:
        """Hands renewed files to the engine for ever; ones that would not do are left out."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> bool:
        """Whether renewed files were handed over."""
        try:
            if all(self._read(name) == (self.folder / name).read_bytes() for name in _OURS):
                return False
            found = problem(self._mounted, self._server_name)
        except OSError as error:
            found = str(error)
        if found:
            if found != self._said:
                log("certificate-refused", reason=found)
            self._said = found
            return False
        self._copy()
        self._said = ""
        log("certificate-renewed")
        return True

    def discard(self) -> None:
        """Removes the copies."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, name: str) -> bytes:
        return (self._mounted / name).read_bytes()

    def _copy(self) -> None:
        # In place, for whoever watches the files; the certificate last: with it they fit again.
        for name in _OURS:
            path = self.folder / name
            path.touch(mode=0o600)
            path.write_bytes(self._read(name))


_OURS: Final = (KEY, CERTIFICATE)


def problem(folder: Path, server_name: str) -> str:
    """Why a client that trusts `ca.crt` would refuse a server with these files; empty if not.

    Asked by a handshake between the two in memory: key, chain, dates and name are what they
    are for OpenSSL, not for us.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(folder / CERTIFICATE, folder / KEY)
    except (OSError, ssl.SSLError) as error:
        return f"{CERTIFICATE} and {KEY} can't be used: {error}"
    try:
        client = ssl.create_default_context(cafile=str(folder / AUTHORITY))
    except (OSError, ssl.SSLError) as error:
        return f"{AUTHORITY} can't be used: {error}"
    try:
        _shake_hands(server, client, server_name)
    except ssl.SSLError as error:
        reason = getattr(error, "verify_message", "") or error.reason
        return f"the certificate is refused for {server_name}: {reason}"
    return ""


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, server_name: str) -> None:
    """Raises `ssl.SSLError` as the client would."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=server_name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_HANDSHAKE_ROUNDS):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
