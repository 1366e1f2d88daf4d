"""A simulated engine's TLS: the certificate in a folder, read again whenever it changes.

As vLLM does with `--enable-ssl-refresh`: connections that are open keep theirs.
Imported only where TLS is asked for: `ssl` costs a simulated engine 1.2 MB.
"""

import asyncio
import contextlib
import ssl
from pathlib import Path
from typing import Final

_LOOK_SECONDS: Final = 0.2


def context_of(folder: Path) -> ssl.SSLContext:
    """Raises `OSError` or `ssl.SSLError` where the files can't be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, folder)
    return context


async def follow(context: ssl.SSLContext, folder: Path) -> None:
    """Loads changed files for ever; a pair that does not fit is left for the next look."""
    known = _versions(folder)
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with contextlib.suppress(OSError, ssl.SSLError):
            found = _versions(folder)
            if found != known:
                _load(context, folder)
                known = found


def _load(context: ssl.SSLContext, folder: Path) -> None:
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")


def _versions(folder: Path) -> list[int]:
    return [(folder / name).stat().st_mtime_ns for name in ("tls.crt", "tls.key")]
