"""Only machines of our own are loaded: loopback, private and in-cluster addresses."""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit


class AddressError(ValueError):
    """The URL can't be used, or leads out of this machine and its cluster."""


def is_ours(address: str) -> bool:
    """Whether an IP address is loopback, link-local or private (RFC 1918, 4193, 5737)."""
    found = ipaddress.ip_address(address.partition("%")[0])
    # ::ffff:0:0/96 as a whole counts as private; what matters is the address inside.
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return (found.is_private or found.is_loopback) and not found.is_unspecified


async def require_ours(url: str) -> str:
    """The URL without a slash at its end, if every address of its host is ours.

    Raises:
        AddressError: not plain http, an unknown host, or a public address.
    """
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise AddressError(f"{url}: need http://HOST[:PORT]")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            parts.hostname, parts.port or 80, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except OSError as error:
        raise AddressError(f"{url}: unknown host {parts.hostname}: {error.strerror}") from error
    strangers = sorted({str(entry[4][0]) for entry in found if not is_ours(str(entry[4][0]))})
    if strangers:
        raise AddressError(
            f"{url}: {', '.join(strangers)} is a public address; load goes only to loopback and "
            "private addresses"
        )
    return url.rstrip("/")
