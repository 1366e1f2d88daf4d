"""Keys that are due for a pass: one pass per key at a time, next-look times, backoff.

`wake` marks a key; a wake-up during its pass makes one more pass. A failed
pass waits longer each time; only a change by a person cuts that wait short, so
that our own writes can't feed a loop (zalando-incubator/kopf#223). What a person
asks for also has a lane of its own: all other passes may be waiting for pods that
do not answer.
"""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable

from speculative_operator.cluster.resources import Key
from speculative_operator.errors import Conflict, OperatorError

log = logging.getLogger(__name__)

Work = Callable[[Key], Awaitable[float | None]]
"""One pass; gives the seconds until the next look, None when the key is gone."""


_AHEAD_SECONDS = 0.001
_PERSON_AHEAD_SECONDS = 1.0
"""In the lane of all, a person's word, an abort, comes before passes that were due for less than
that; who waits for longer is not passed over by however many of them."""


LANES_OF_PERSONS = 2
"""Few: side by side a busy API server answers the first of many aborts no sooner than the last."""


class Queue:
    """Runs `work` for due keys on `workers` tasks, and on a few more what persons ask for.

    Times are seconds.
    """

    def __init__(
        self,
        work: Work,
        *,
        workers: int = 8,
        settle: float = 0.005,
        first_backoff: float = 0.5,
        first_conflict_backoff: float = 0.01,
        longest_backoff: float = 60.0,
        on_failure: Callable[[Key, Exception], None] = lambda key, error: None,
    ) -> None:
        self._work = work
        self._workers = workers
        self._settle = settle
        """A burst of changes makes one pass."""
        self._first_backoff = first_backoff
        self._first_conflict_backoff = first_conflict_backoff
        """An abort that comes while a pass writes must not wait as for a server that is away."""
        self._longest_backoff = longest_backoff
        self._on_failure = on_failure
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, Key]] = []
        self._asked_for: dict[Key, None] = {}
        """Due because of a person, in that order."""
        self._running: dict[Key, float] = {}
        self._dirty: dict[Key, bool] = {}
        """Woken during their pass, and whether by a person."""
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due.keys() | self._running.keys())

    def longest_wait(self) -> float:
        """Seconds for which the oldest pass has been due or running; 0 when there is none."""
        since = [*self._running.values(), *self._due.values()]
        return max(0.0, _now() - min(since, default=float("inf")))

    def wake(self, key: Key, by_a_person: bool = False) -> None:
        """A pass is due now; after failures only if a person changed something.

        What a person changed is one event, for which no burst is to be waited for.
        """
        if by_a_person:
            self._failures.pop(key, None)
        if key in self._running:
            self._dirty[key] = self._dirty.get(key, False) or by_a_person
        elif key not in self._failures:
            self._schedule_soon(key, by_a_person)

    def _schedule_soon(self, key: Key, by_a_person: bool) -> None:
        if by_a_person:
            self._asked_for[key] = None
        self._schedule(key, -_PERSON_AHEAD_SECONDS if by_a_person else self._settle)

    def hasten(self, key: Key) -> None:
        """Its pass comes before those that are due by now."""
        if key not in self._running:
            # Others may have been due for long, while lists came in.
            self._schedule_at(key, min(self._due.values(), default=_now()) - _AHEAD_SECONDS)

    def _schedule(self, key: Key, seconds: float) -> None:
        """Sets the key's due time unless it is due earlier anyway."""
        self._schedule_at(key, _now() + seconds)

    def _schedule_at(self, key: Key, due: float) -> None:
        if key in self._due and self._due[key] <= due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        self._changed.set()

    async def run(self) -> None:
        """Works until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker(self._next))
            for _ in range(LANES_OF_PERSONS):
                group.create_task(self._worker(self._next_asked_for))

    async def _worker(self, following: Callable[[], Awaitable[Key]]) -> None:
        while True:
            key = await following()
            await self._pass(key)
            # A pass over an unchanged world waits for nothing: after a start a thousand of them in
            # a row would keep the Lease from its renewal, and an edited resource from its answer.
            await asyncio.sleep(0)

    async def _next(self) -> Key:
        while True:
            wait = self._seconds_until_due()
            if wait is not None and wait <= 0:
                return self._begun(self._heap[0][1])
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._changed.wait()

    async def _next_asked_for(self) -> Key:
        while not self._asked_for:
            self._changed.clear()
            await self._changed.wait()
        return self._begun(next(iter(self._asked_for)))

    def _begun(self, key: Key) -> Key:
        del self._due[key]
        self._asked_for.pop(key, None)
        self._running[key] = _now()
        return key

    def _seconds_until_due(self) -> float | None:
        """Until the earliest key is due; None when none is."""
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
        if not self._heap:
            return None
        return self._heap[0][0] - _now()

    async def _pass(self, key: Key) -> None:
        following: float | None
        try:
            following = await self._work(key)
            self._failures.pop(key, None)
        except Conflict as error:
            # Somebody else wrote: look again soon, that is no failure of ours.
            following = self._failed(key, error)
        except OperatorError as error:
            following = self._failed(key, error)
            log.warning("event=pass-failed object=%s/%s why=%r", *key, str(error))
        except Exception as error:
            # The outermost loop: one bad object stops no other.
            following = self._failed(key, error)
            log.exception("event=pass-broken object=%s/%s", *key)
        finally:
            self._running.pop(key, None)
        by_a_person = self._dirty.pop(key, None)
        if by_a_person is not None and key not in self._failures:
            self._schedule_soon(key, by_a_person)
        elif following is not None:
            self._schedule(key, following)

    def _failed(self, key: Key, error: Exception) -> float:
        self._on_failure(key, error)
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        conflict = isinstance(error, Conflict)
        first = self._first_conflict_backoff if conflict else self._first_backoff
        return min(first * 2.0 ** min(count, 30), self._longest_backoff)


def _now() -> float:
    return asyncio.get_running_loop().time()
