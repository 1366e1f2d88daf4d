"""Streams of requests for as long as wanted: the resource `Load`."""

import asyncio
import time
from types import TracebackType
from typing import Any, Self

import aiohttp

from .addresses import require_ours
from .counts import Outcome, Report, Result, report_of
from .prompts import PROMPTS
from .request import Question, ask, headers_of

PAUSE_AFTER_FAILURE_SECONDS = 0.25
"""A refused stream asks again after this, so that failures do not flood the machine."""


class LoadError(Exception):
    """The load can't begin; the message says why."""


class Load:
    """Streams that ask one prompt after another until stopped.

    An async context manager: leaving it lets running answers end (at most
    `drain_seconds`) and ends the streams in any case. `streams` run at once;
    `requests` bounds their number (None: no bound). `lane` is sent as the lane
    header, `api_key` as the bearer token. Requests still running when the drain
    time is over are counted as abandoned: nobody else cut them.
    """

    def __init__(
        self,
        url: str,
        *,
        streams: int = 3,
        prompts: str = "copy-heavy",
        max_tokens: int = 24,
        lane: str | None = None,
        api_key: str | None = None,
        model: str | None = None,
        stream: bool = True,
        requests: int | None = None,
        timeout_seconds: float = 120.0,
        drain_seconds: float = 60.0,
    ) -> None:
        if streams < 1 or max_tokens < 1 or (requests is not None and requests < 1):
            raise LoadError("streams, max_tokens and requests must be at least 1")
        if prompts not in PROMPTS:
            raise LoadError(f"prompts {prompts!r} are unknown: choose from {', '.join(PROMPTS)}")
        self._url = url
        self._streams = streams
        self._prompts = PROMPTS[prompts]
        self._max_tokens = max_tokens
        self._lane = lane
        self._api_key = api_key
        self._model = model
        self._stream = stream
        self._left = requests
        self._timeout_seconds = timeout_seconds
        self._drain_seconds = drain_seconds
        self._asked = 0
        self._stopping = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self.outcomes: list[Outcome] = []
        """Every request that has ended, in the order of ending."""

    async def __aenter__(self) -> Self:
        """Begins.

        Raises:
            AddressError: the address is not ours.
            LoadError: no model was named and the server names none.
        """
        self._url = await require_ours(self._url)
        # No proxy and no cookies from the environment: straight to the address.
        session = aiohttp.ClientSession(
            trust_env=False, connector=aiohttp.TCPConnector(limit=self._streams + 1)
        )
        try:
            model = self._model or await model_at(
                session, self._url, lane=self._lane, api_key=self._api_key
            )
        except BaseException:
            await session.close()
            raise
        self._session = session
        self._tasks = [
            asyncio.create_task(self._run(session, model), name=f"load-{number}")
            for number in range(self._streams)
        ]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop(drain_seconds=self._drain_seconds if kind is None else 0)

    async def stop(self, *, drain_seconds: float | None = None) -> None:
        """Asks nothing more, waits for running answers, and ends. Again: nothing happens."""
        self._stopping.set()
        wait = self._drain_seconds if drain_seconds is None else drain_seconds
        try:
            if self._tasks and wait > 0:
                await asyncio.wait(self._tasks, timeout=wait)
        finally:
            for task in self._tasks:
                task.cancel()
            ended = await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks = []
            if self._session is not None:
                await self._session.close()
        faults = [f for f in ended if isinstance(f, Exception)]
        if faults:
            raise faults[0]

    async def finished(self) -> None:
        """Waits until the bound on requests is reached and all are answered."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    @property
    def running(self) -> bool:
        """Whether any stream still asks."""
        return any(not task.done() for task in self._tasks)

    def report(self, *, since: float = 0.0) -> Report:
        """What the requests came to that ended after `since` (`time.monotonic()`)."""
        return report_of([outcome for outcome in self.outcomes if outcome.ended_at >= since])

    async def _run(self, session: aiohttp.ClientSession, model: str) -> None:
        while not self._stopping.is_set():
            if self._left is not None:
                if self._left == 0:
                    return
                self._left -= 1
            outcome = await self._ask(session, model)
            self.outcomes.append(outcome)
            if outcome.result is not Result.OK:
                await self._pause()

    async def _ask(self, session: aiohttp.ClientSession, model: str) -> Outcome:
        question = Question(
            url=self._url,
            model=model,
            prompt=self._prompts[self._asked % len(self._prompts)],
            max_tokens=self._max_tokens,
            stream=self._stream,
            lane=self._lane,
            api_key=self._api_key,
            timeout_seconds=self._timeout_seconds,
        )
        self._asked += 1
        started = time.monotonic()
        try:
            return await ask(session, question)
        except asyncio.CancelledError:
            ended = time.monotonic()
            self.outcomes.append(Outcome(Result.ABANDONED, started_at=started, ended_at=ended))
            raise

    async def _pause(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), PAUSE_AFTER_FAILURE_SECONDS)
        except TimeoutError:
            return


async def model_at(
    session: aiohttp.ClientSession, url: str, *, lane: str | None, api_key: str | None = None
) -> str:
    """The first model that a server serves.

    Raises:
        LoadError: it does not say.
    """
    try:
        async with session.get(
            f"{url}/v1/models",
            headers=headers_of(lane, api_key),
            timeout=aiohttp.ClientTimeout(total=15),
            allow_redirects=False,
        ) as response:
            if response.status != 200:
                said = (await response.text())[:200]
                raise LoadError(f"{url}/v1/models answers {response.status}: {said}")
            found: dict[str, Any] = await response.json(content_type=None)
            return str(found["data"][0]["id"])
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise LoadError(f"{url}/v1/models: {type(error).__name__}: {error}") from error
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LoadError(f"{url}/v1/models names no model: use --model") from error
