"""A small request to an engine that nobody asks anything: a dead one is found before a user does.

Every `engine.heartbeatSeconds` without work one token is asked for. What the
engine counts for it is measured and taken out of the digest. One that gets no
answer is a stall, which drops readiness.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, Final

from speculative_api.engine_metrics import Histogram, Load, Reading
from speculative_worker.engine_client import EngineClient, EngineSilent
from speculative_worker.log import log

ANSWER_SECONDS: Final = 60.0
"""How long one token may take an idle engine before it counts as stalled."""
AGAIN_SECONDS: Final = 10.0
"""After a beat without an answer: a restart is near, and may not hang on one beat."""
_SETTLE_SECONDS: Final = 0.2
_SETTLE_LOOKS: Final = 10
_GAUGES: Final = frozenset({"running", "waiting", "kv_cache_usage", "kv_cache_blocks"})
_TOKEN: Final = 10


def heartbeat_request(model: str) -> dict[str, Any]:
    """The body of a heartbeat: one token of prompt, one of answer, nothing to draft."""
    return {"model": model, "prompt": [_TOKEN], "max_tokens": 1, "temperature": 0}


def is_idle(found: Mapping[str, Load], since: Mapping[str, Load]) -> bool:
    """Whether nothing runs or waits at two looks, and nothing was generated between them."""
    free = all(load.running == load.waiting == 0 for load in found.values())
    return bool(found) and free and found == since


def difference(after: Reading, before: Reading) -> Reading:
    """What was counted between two looks; gauges are those of the later one."""
    return _combined(after, before, -1)


def total(one: Reading, other: Reading) -> Reading:
    """Both together; gauges are those of the first."""
    return _combined(one, other, 1)


def _combined(one: Reading, other: Reading, sign: int) -> Reading:
    changed: dict[str, Any] = {}
    for field in fields(Reading):
        ours, theirs = getattr(one, field.name), getattr(other, field.name)
        if field.name in _GAUGES or ours is None or theirs is None:
            continue
        if isinstance(ours, Histogram):
            changed[field.name] = _histogram(ours, theirs, sign)
        elif isinstance(ours, int) and not isinstance(ours, bool):
            changed[field.name] = max(0, ours + sign * theirs)
    return replace(one, **changed)


def _histogram(one: Histogram, other: Histogram, sign: int) -> Histogram:
    if one.source != other.source:
        return one
    theirs = dict(other.buckets)
    buckets = tuple((bound, count + sign * theirs.get(bound, 0)) for bound, count in one.buckets)
    return replace(
        one, buckets=buckets, sum=one.sum + sign * other.sum, count=one.count + sign * other.count
    )


def _generated(found: Mapping[str, Load]) -> int:
    return sum(load.generated for load in found.values())


def _finished(found: Reading) -> int:
    return found.requests_finished or 0


class Heartbeat:
    """Beats until it is cancelled; knows what the engine counted for it."""

    def __init__(self, client: EngineClient, *, model: str, period_seconds: float) -> None:
        self._client = client
        self._request = heartbeat_request(model)
        self._period_seconds = period_seconds
        self._counted: Reading | None = None
        self._held: Reading | None = None
        """While a beat is under way: the look before it, for nobody knows yet what it counts."""
        self._last: Reading | None = None
        self._unanswered = False
        """Whether the last beat was."""

    def without(self, found: Reading) -> Reading:
        """A reading less everything that heartbeats had counted; its counters never fall.

        A look that began during a beat may lack what is already taken out:
        then the last answer is given again.
        """
        base = self._held or found
        clean = difference(base, self._counted) if self._counted is not None else base
        if self._last is not None and _finished(clean) < _finished(self._last):
            return self._last
        self._last = clean
        return clean

    async def run(self, silent: Callable[[str | None], None]) -> None:
        """Beats for ever; `silent` gets the rule of a stall, or None once an answer came."""
        before: Mapping[str, Load] = {}
        while True:
            again = self._unanswered
            pause = min(AGAIN_SECONDS, self._period_seconds) if again else self._period_seconds
            await asyncio.sleep(pause)
            try:
                found = await self._client.load()
                if again and before and _generated(found) > _generated(before):
                    # Somebody else got a token: it works, whatever became of the beat.
                    self._say(None, silent)
                elif again or is_idle(found, before):
                    await self._beat(await self._client.fresh_sample(), silent)
                    found = await self._client.load()
            except EngineSilent:
                found = {}  # the progress rule speaks for an engine without metrics
            before = found

    def _say(self, rule: str | None, silent: Callable[[str | None], None]) -> None:
        self._unanswered = rule is not None
        silent(rule)

    async def _beat(self, before: Reading, silent: Callable[[str | None], None]) -> None:
        started, self._held = time.monotonic(), before
        try:
            await self._ask(before, silent, started)
        finally:
            self._held = None

    async def _ask(
        self, before: Reading, silent: Callable[[str | None], None], started: float
    ) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status, _ = await self._client.complete(self._request)
        except (TimeoutError, EngineSilent) as error:
            took = f"{time.monotonic() - started:.0f} s ({type(error).__name__})"
            self._say(f"the heartbeat of an idle engine got no answer in {took}", silent)
            return
        if status >= 500:
            self._say(f"the heartbeat of an idle engine was answered with {status}", silent)
            return
        self._say(None, silent)
        await self._remember(before)

    async def _remember(self, before: Reading) -> None:
        """Takes what was counted for this beat out, unless a user's request came at once."""
        for _ in range(_SETTLE_LOOKS):
            try:
                after = await self._client.fresh_sample()
            except EngineSilent:
                return
            finished = _finished(after) - _finished(before)
            if finished == 1:
                counted = difference(after, before)
                self._counted = total(self._counted, counted) if self._counted else counted
                return
            if finished > 1:
                log("heartbeat-counted", requests=finished)
                return
            await asyncio.sleep(_SETTLE_SECONDS)
