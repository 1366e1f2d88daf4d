"""The cluster as the demo sees it: kubectl for what a user types, plain HTTP for looking.

Looking happens each second beside two engines on two cores, so it goes through
one `kubectl proxy` instead of a new kubectl each time. That also works with
every kubeconfig that kubectl understands.
"""

import asyncio
import json
import os
import re
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp

from .errors import DemoError

COMMAND_SECONDS = 60.0
"""Longest single kubectl command."""
REQUEST_SECONDS = 10.0
START_SECONDS = 15.0
_SERVING = re.compile(r"on (127\.0\.0\.1:\d+)")


class Kube:
    """kubectl with one kubeconfig, and its proxy; an async context manager."""

    def __init__(self, *, kubeconfig: Path | None, binaries: Path) -> None:
        self.environment = dict(os.environ)
        self.environment["PATH"] = f"{binaries}{os.pathsep}{self.environment.get('PATH', '')}"
        if kubeconfig is not None:
            self.environment["KUBECONFIG"] = str(kubeconfig)
        self._children: list[asyncio.subprocess.Process] = []
        self._session: aiohttp.ClientSession | None = None
        self._base = ""

    async def __aenter__(self) -> Self:
        """Starts the proxy.

        Raises:
            DemoError: kubectl is missing or can't serve.
        """
        try:
            address = await self._serve("proxy", "--port=0")
        except BaseException:
            await self._end_children()
            raise
        self._base = f"http://{address}"
        self._session = aiohttp.ClientSession(
            trust_env=False, timeout=aiohttp.ClientTimeout(total=REQUEST_SECONDS)
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
        await self._end_children()

    async def _end_children(self) -> None:
        for child in self._children:
            if child.returncode is None:
                child.terminate()
        for child in self._children:
            try:
                await asyncio.wait_for(child.wait(), 5)
            except TimeoutError:
                child.kill()
                await child.wait()
        self._children = []

    def program(self, name: str) -> str:
        """The path of a program.

        Raises:
            DemoError: there is none.
        """
        found = shutil.which(name, path=self.environment["PATH"])
        if found is None:
            raise DemoError(f"{name} is not installed; make cluster-up builds it")
        return found

    async def _serve(self, *arguments: str) -> str:
        """Starts a kubectl that serves on loopback; returns its address."""
        child = await asyncio.create_subprocess_exec(
            self.program("kubectl"),
            *arguments,
            env=self.environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        self._children.append(child)
        assert child.stdout is not None
        said = ""
        try:
            async with asyncio.timeout(START_SECONDS):
                while line := await child.stdout.readline():
                    said += line.decode(errors="replace")
                    if found := _SERVING.search(said):
                        return found.group(1)
        except TimeoutError:
            said += f"\n(no address after {START_SECONDS:.0f} s)"
        raise DemoError(f"kubectl {' '.join(arguments)}: {said.strip() or 'ended at once'}")

    async def forward(self, namespace: str, service: str) -> str:
        """A loopback address that leads to a Service's port 80, for as long as this is open."""
        return await self._serve("port-forward", "-n", namespace, f"service/{service}", ":80")

    async def kubectl(
        self, *arguments: str, stdin: str | None = None, seconds: float = COMMAND_SECONDS
    ) -> str:
        """Runs kubectl as a user would; returns what it prints.

        Raises:
            DemoError: it failed, or took too long; with what it said.
        """
        return await self.run(self.program("kubectl"), *arguments, stdin=stdin, seconds=seconds)

    async def run(self, *argv: str, stdin: str | None = None, seconds: float) -> str:
        """Runs any program with this environment. Raises as `kubectl`."""
        child = await asyncio.create_subprocess_exec(
            *argv,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        shown = " ".join([Path(argv[0]).name, *argv[1:6]])
        try:
            async with asyncio.timeout(seconds):
                out, err = await child.communicate(None if stdin is None else stdin.encode())
        except BaseException as error:
            if child.returncode is None:
                child.kill()
                await child.wait()
            if isinstance(error, TimeoutError):
                raise DemoError(f"{shown}: not done after {seconds:.0f} s") from error
            raise
        if child.returncode != 0:
            said = (err or out).decode(errors="replace").strip()
            raise DemoError(f"{shown}: exit status {child.returncode}: {said}")
        return out.decode(errors="replace")

    async def apply(self, namespace: str, document: dict[str, Any]) -> str:
        """kubectl apply of one document; returns its line."""
        body = json.dumps(document)
        return (await self.kubectl("apply", "-n", namespace, "-f", "-", stdin=body)).strip()

    async def look(self, path: str) -> Any:
        """GET of an API path as JSON; None where it is not found.

        Raises:
            DemoError: another answer than 200 or 404, or none.
        """
        assert self._session is not None
        try:
            async with self._session.get(self._base + path) as response:
                if response.status == 404:
                    return None
                text = await response.text()
                if response.status != 200:
                    raise DemoError(f"GET {path}: {response.status}: {text[:300]}")
                return json.loads(text)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise DemoError(f"GET {path}: {type(error).__name__}: {error}") from error

    async def ask_pod(self, namespace: str, pod: str, port: int, path: str) -> Any:
        """GET of a pod's own HTTP endpoint as JSON; None while it does not answer."""
        try:
            return await self.look(f"/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{path}")
        except DemoError:
            return None
