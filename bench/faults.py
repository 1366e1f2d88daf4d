"""The faults of `make soak-faults`: what each does to the world, and how it is taken back."""

import asyncio
import contextlib
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from bench.disturbed_api import DisturbedApi
from tests.cluster.envtest import Server

DISK_KIB = 4096
"""Size of the small disk of one gateway."""


class Disturbable(Protocol):
    """What a fault may touch; nothing else of the machine."""

    server: Server
    api: DisturbedApi
    token: Path
    """File with the operator's and the agents' token."""
    clock: Path
    """File with the seconds by which the operator's wall clock is off."""
    disk: Path | None
    """A small disk that holds a gateway's files; None where none could be mounted."""

    def kill_operator(self) -> None:
        """SIGKILL, as the kernel does when memory is short; it is started again."""


Fault = Callable[[Disturbable, float], Awaitable[None]]
"""Disturbs for so many seconds; when it returns, the cause is gone."""


async def api_server_restart(world: Disturbable, seconds: float) -> None:
    """It is away for a third of the time."""
    await _away(world.server, "apiserver", seconds / 3)


async def etcd_restart(world: Disturbable, seconds: float) -> None:
    """Likewise; the API server stays and has nowhere to write."""
    await _away(world.server, "etcd", seconds / 3)


async def _away(server: Server, name: str, seconds: float) -> None:
    part = server.parts[name]
    await asyncio.to_thread(part.stop)
    await asyncio.sleep(seconds)
    part.start()


async def watches_expire(world: Disturbable, seconds: float) -> None:
    """410 Gone on every new watch for a while; the present ones end with the API server."""
    loop = asyncio.get_running_loop()
    world.api.watches_expire_until = loop.time() + seconds / 2
    await _away(world.server, "apiserver", 1.0)
    await asyncio.sleep(seconds / 2)


async def watches_silent(world: Disturbable, seconds: float) -> None:
    """Open, and without a byte: nobody is told that anything happens."""
    world.api.silence_watches()
    await asyncio.sleep(seconds)


async def too_many_requests(world: Disturbable, seconds: float) -> None:
    """429 for everything."""
    await _answering(world, 429, seconds)


async def unavailable(world: Disturbable, seconds: float) -> None:
    """503 for everything."""
    await _answering(world, 503, seconds)


async def _answering(world: Disturbable, status: int, seconds: float) -> None:
    world.api.status = status
    try:
        await asyncio.sleep(seconds)
    finally:
        world.api.status = 0


async def slow_api(world: Disturbable, seconds: float) -> None:
    """Every answer takes 2 s."""
    world.api.delay_seconds = 2.0
    try:
        await asyncio.sleep(seconds)
    finally:
        world.api.delay_seconds = 0.0


async def token_rotation(world: Disturbable, seconds: float) -> None:
    """A new token in the file; the old one is good for 40 s more, as long as a kubelet gives it."""
    (old,) = world.api.tokens
    new = f"{old}+"
    world.api.tokens = {old, new}
    world.token.write_text(new)
    await asyncio.sleep(max(40.0, seconds))
    world.api.tokens = {new}


async def clock_forward(world: Disturbable, seconds: float) -> None:
    """The operator's wall clock is an hour ahead, and then right again."""
    await _off(world, 3600, seconds)


async def clock_back(world: Disturbable, seconds: float) -> None:
    """Likewise an hour behind."""
    await _off(world, -3600, seconds)


async def _off(world: Disturbable, by: int, seconds: float) -> None:
    world.clock.write_text(str(by))
    try:
        await asyncio.sleep(seconds)
    finally:
        world.clock.write_text("0")


async def full_disk(world: Disturbable, seconds: float) -> None:
    """No byte can be written beside one gateway's files."""
    if world.disk is None:
        return
    filler = world.disk / "filler"
    # Unbuffered: what could not be written must not be tried again by closing the file.
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"\0" * 4096):
            pass
    try:
        await asyncio.sleep(seconds)
    finally:
        filler.unlink()


async def operator_killed(world: Disturbable, seconds: float) -> None:
    """SIGKILL, three times."""
    for _ in range(3):
        world.kill_operator()
        await asyncio.sleep(seconds / 3)


FAULTS: dict[str, Fault] = {
    fault.__name__: fault
    for fault in (
        api_server_restart,
        etcd_restart,
        watches_expire,
        watches_silent,
        too_many_requests,
        unavailable,
        slow_api,
        token_rotation,
        clock_forward,
        clock_back,
        full_disk,
        operator_killed,
    )
}


def small_disk(folder: Path) -> bool:
    """Mounts one; False where that is not allowed."""
    folder.mkdir()
    argv = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KIB}k", "tmpfs", str(folder)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0  # noqa: S603


def unmount(folder: Path) -> None:
    """The inverse, whoever still has files open there."""
    argv = ["umount", "-l", str(folder)]
    subprocess.run(argv, capture_output=True, check=False)  # noqa: S603
