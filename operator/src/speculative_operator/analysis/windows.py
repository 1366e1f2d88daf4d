"""Counters become windows: what each arm did over the same stretch of time.

In: one `Reading` per pod and look (cumulative counters with a reset mark).
Out: the next `Window`, and a closed `Block` now and then. `verdict` calls it,
once for the workers' digests and once for the gateways' answers.
Pure: no clock, `at` is passed in (unix seconds of the operator).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from operator import add, sub
from typing import Any, Final, NamedTuple

from speculative_api.worker import Digest
from speculative_operator.analysis.queried import Measurement
from speculative_operator.snapshot import GatewayPod, WorkerPod

BLOCK_SECONDS: Final = 10.0
"""Shortest block; below it increments of one look are too correlated (recipe, section 2)."""
BLOCK_REQUESTS: Final = 3
"""Requests of EACH arm in a block; with fewer its sums are far from Gaussian."""
FRESH_SECONDS: Final = 6.0
"""Both arms must have been read within this of a block's end, so that they cover the same time.
More than the default period of 5 s, less than the shortest block."""
SILENT_SECONDS: Final = 60.0
"""A pod silent for longer (or, with rare looks, for two of them) is forgotten, and the open block
with it: the block would cover different times in the two arms. Until then judging holds."""
MARK_SECONDS: Final = 0.5
"""Start times that differ by less are the same start, rounded differently."""

CANDIDATE: Final = "candidate"
CONTROL: Final = "control"
BOTH: Final = frozenset({CANDIDATE, CONTROL})
ALONE: Final = frozenset({CANDIDATE})

Counters = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at both arms.

    `at` is unix seconds; `weight` the candidate's share in percent that the
    gateways were seen to use, of users or of copies; pods are all pods of the
    resource, of any revision.
    """

    at: float
    weight: int
    candidate: str
    control: str
    pods: tuple[WorkerPod, ...]
    gateways: tuple[GatewayPod, ...]
    period_seconds: float = 5.0
    """Time between two looks (`analysis.periodSeconds`)."""
    sticky: bool = False
    """Whether sessions stay with a revision (`gateway.sessionAffinityHeader`)."""
    shadow: bool = False
    """Whether the candidate answers copies: the gateways count those apart."""
    measurements: Mapping[str, Measurement] = field(default_factory=dict)
    """The newest answers to queries, by the metric's name."""
    problem: str = ""
    """Why the engines' figures can't be had of their one source, if they can't."""

    @property
    def arms(self) -> frozenset[str]:
        """The arms that there are: without a control only absolute bounds can be judged."""
        return BOTH if self.control else ALONE

    @property
    def silent_seconds(self) -> float:
        """A pod unread for longer is given up: with rare looks, one missed look is not enough."""
        return max(SILENT_SECONDS, 2.5 * self.period_seconds)

    def arm(self, revision: str) -> str | None:
        """Which arm a revision is; None for all others."""
        return _arm(revision, self.candidate, self.control)


class Reading(NamedTuple):
    """Cumulative counters of one pod; `counters[0]` is its number of requests.

    `mark` is the start time of the process that counts, `sampled_at` the time
    of the reading, both unix seconds of that pod's own clock. (A tuple, like
    `Seen`: some of each are made per pod and look, at a third of the time.)
    """

    key: str
    arm: str
    mark: float
    sampled_at: float
    counters: Counters


class Seen(NamedTuple):
    """The last reading of a pod; `moved_at` and `since` in the operator's clock.

    `since` is when its baseline was taken: it counts from the first block that
    begins at or after it. `gained` is what it added to the open block, for
    control's pods; empty: nothing yet.
    """

    arm: str
    mark: float
    sampled_at: float
    moved_at: float
    since: float
    counters: Counters
    gained: Counters = ()


@dataclass(frozen=True, slots=True)
class Block:
    """Increments of both arms since `began_at` (unix seconds), at one weight.

    `pods` are those of every pod of control, once the block is closed.
    """

    began_at: float
    weight: int
    candidate: Counters
    control: Counters
    pods: tuple[Counters, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """The open block, the last reading of every pod, and what was counted since the beginning.

    `candidate` and `control` are totals of all increments, those of dropped
    blocks included; `dropped` counts blocks that could not be used.
    """

    width: int
    block: Block | None = None
    seen: dict[str, Seen] = field(default_factory=dict)
    candidate: Counters = ()
    control: Counters = ()
    dropped: int = 0

    @classmethod
    def empty(cls, width: int) -> "Window":
        """A window over `width` counters with nothing read yet."""
        return cls(width, candidate=(0,) * width, control=(0,) * width)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives back an equal window."""
        block = self.block
        return {
            "block": block and [block.began_at, block.weight, block.candidate, block.control],
            "seen": {
                key: [*seen[:-1], seen.gained] if seen.gained else seen[:-1]
                for key, seen in self.seen.items()
            },
            "candidate": self.candidate,
            "control": self.control,
            "dropped": self.dropped,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Window":
        """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on other data."""
        candidate, control = tuple(data["candidate"]), tuple(data["control"])
        block = None
        if data["block"] is not None:
            began_at, weight, ours, theirs = data["block"]
            block = Block(began_at, weight, tuple(ours), tuple(theirs))
        return cls(
            width=len(candidate),
            block=block,
            seen={
                key: Seen(arm, mark, sampled_at, moved_at, since, *map(tuple, counters))
                for key, (arm, mark, sampled_at, moved_at, since, *counters) in data["seen"].items()
            },
            candidate=candidate,
            control=control,
            dropped=data["dropped"],
        )


def worker_readings(pods: Iterable[WorkerPod], *, candidate: str, control: str) -> list[Reading]:
    """(requests, generated, accepted, drafted) tokens of every pod that reports speculation.

    A pod without speculation or without these counters gives no reading: absent
    is not 0. An engine that does not say what it drafted is taken to draft.
    """
    arms = {control: CONTROL, candidate: CANDIDATE}
    readings = []
    for pod in pods:
        digest, arm = pod.digest, arms.get(pod.revision)
        if digest is None or arm is None or pod.terminating or digest.method == "None":
            continue
        requests, generated, accepted = (
            digest.requests_finished,
            digest.generated_tokens,
            digest.accepted_tokens,
        )
        if requests is None or generated is None or accepted is None:
            continue
        drafted = generated if digest.draft_tokens is None else digest.draft_tokens
        counters = (requests, generated, accepted, drafted)
        readings.append(
            Reading(pod.uid, arm, digest.engine_started_at, digest.sampled_at, counters)
        )
    return readings


def steps_of(worker: Counters, longest: int | None) -> int:
    """Decoding steps of a worker's counters, as `Digest.steps`.

    Of drafts of at most `longest` tokens so many tokens need at least so many.
    """
    _, generated, accepted, drafted = worker
    drafts = -(-drafted // longest) if longest else 0
    return max(generated - accepted, drafts)


def longest_draft(digests: Iterable[Digest]) -> int | None:
    """Tokens of a draft at most; None where an engine does not say what it drafts."""
    longest = 0
    for digest in digests:
        if digest.draft_tokens is None:
            return None
        longest = max(longest, digest.num_speculative_tokens or 0)
    return longest or None


def gateway_readings(
    pods: Iterable[GatewayPod], *, candidate: str, control: str, shadow: bool = False
) -> list[Reading]:
    """(responses, 5xx, cut, 4xx) of every cluster of either arm, by gateway pod and cluster.

    With `shadow` the candidate's are those to copies.
    """
    readings = []
    for pod in pods:
        if pod.state is None or pod.terminating:
            continue
        for cluster in pod.state.clusters:
            arm = _arm(cluster.hash, candidate, control)
            counted = cluster.shadow if shadow and arm == CANDIDATE else cluster
            if arm is None or counted is None:
                continue
            classes = [counted.responses.get(name, 0) for name in ("2xx", "3xx", "4xx", "5xx")]
            counters = (sum(classes), classes[3], counted.cut, classes[2])
            mark, sampled_at = pod.state.envoy_started_at, pod.state.sampled_at
            readings.append(Reading(f"{pod.uid}/{cluster.hash}", arm, mark, sampled_at, counters))
    return readings


def _arm(revision: str, candidate: str, control: str) -> str | None:
    if revision == candidate:
        return CANDIDATE
    return CONTROL if revision == control else None


def increment(before: Seen, now: Reading) -> Counters:
    """What was counted in between; after a reset the new values alone, never negative.

    A reset shows by a new start time OR a fallen value: a new process may have
    overtaken the old value within one look.
    """
    gained = tuple(map(sub, now.counters, before.counters))
    if abs(now.mark - before.mark) > MARK_SECONDS or min(gained) < 0:
        return now.counters
    return gained


def advance(
    window: Window,
    readings: Sequence[Reading],
    *,
    at: float,
    weight: int,
    present: Set[str],
    closable: Callable[[Block], bool] = lambda block: True,
    silent_seconds: float = SILENT_SECONDS,
    arms: frozenset[str] = BOTH,
) -> tuple[Window, Block | None]:
    """Takes one look; returns the window after it and the block that it closed, if it did.

    `present` are the uids of the pods that exist: one that is gone is forgotten,
    one that exists and is silent holds the block open. `closable` may ask for
    more exposure than `BLOCK_REQUESTS`; it must not look at outcomes. `arms` are
    those that a block needs.
    """
    seen, silenced = _still_here(window, at=at, uids=present, silent_seconds=silent_seconds)
    block = window.block
    began_at = block.began_at if block else -math.inf
    totals: dict[str, list[Counters]] = {CANDIDATE: [], CONTROL: []}
    sums: dict[str, list[Counters]] = {CANDIDATE: [], CONTROL: []}
    for reading in readings:
        key, arm, mark, sampled_at, counters = reading
        known = seen.get(key)
        if known is None or known.arm != arm:
            seen[key] = Seen(arm, mark, sampled_at, at, at, counters)
            continue
        _, before, sampled_before, _, since, _, in_block = known
        if sampled_at <= sampled_before and abs(mark - before) <= MARK_SECONDS:
            continue  # the same answer again, or an older one that was late
        gained = increment(known, reading)
        totals[arm].append(gained)
        if since <= began_at:
            sums[arm].append(gained)
            if arm == CONTROL:
                in_block = tuple(map(add, in_block, gained)) if in_block else gained
        seen[key] = Seen(arm, mark, sampled_at, at, since, counters, in_block)
    if block:
        block = Block(
            began_at,
            block.weight,
            _plus(block.candidate, sums[CANDIDATE]),
            _plus(block.control, sums[CONTROL]),
        )
    moved = Window(
        window.width,
        block,
        seen,
        _plus(window.candidate, totals[CANDIDATE]),
        _plus(window.control, totals[CONTROL]),
        window.dropped,
    )
    return _next_block(moved, at=at, weight=weight, silenced=silenced, closable=closable, arms=arms)


def _still_here(
    window: Window, *, at: float, uids: Set[str], silent_seconds: float
) -> tuple[dict[str, Seen], bool]:
    """The known pods that exist and have not been silent for too long, and whether one has."""
    oldest, seen, silenced = at - silent_seconds, {}, False
    for key, known in window.seen.items():
        if key not in uids and key.split("/")[0] not in uids:
            continue
        if known.moved_at >= oldest:
            seen[key] = known
        else:
            silenced = True
    return seen, silenced


def _next_block(
    window: Window,
    *,
    at: float,
    weight: int,
    silenced: bool,
    closable: Callable[[Block], bool],
    arms: frozenset[str],
) -> tuple[Window, Block | None]:
    block = window.block
    nothing = (0,) * window.width
    fresh_block = Block(at, weight, nothing, nothing)
    if block is None:
        ready = _has_arms(window, at, arms)
        return (replace(window, block=fresh_block) if ready else window), None
    if silenced or block.weight != weight or not _has_arms(window, block.began_at, arms):
        used = any(block.candidate) or any(block.control)
        ready = _has_arms(window, at, arms)
        dropped = window.dropped + used
        begun = fresh_block if ready else None
        return replace(window, block=begun, dropped=dropped, seen=_afresh(window)), None
    enough = (
        at - block.began_at >= BLOCK_SECONDS
        and block.candidate[0] >= BLOCK_REQUESTS
        and (CONTROL not in arms or block.control[0] >= BLOCK_REQUESTS)
    )
    if not (enough and _is_read_afresh(window, block, at) and closable(block)):
        return window, None
    closed = replace(block, pods=tuple(seen.gained for seen in window.seen.values() if seen.gained))
    return replace(window, block=fresh_block, seen=_afresh(window)), closed


def _is_read_afresh(window: Window, block: Block, at: float) -> bool:
    return all(
        at - pod.moved_at <= FRESH_SECONDS
        for pod in window.seen.values()
        if pod.since <= block.began_at
    )


def _afresh(window: Window) -> dict[str, Seen]:
    """The pods at the beginning of a block."""
    return {
        key: known._replace(gained=()) if known.gained else known
        for key, known in window.seen.items()
    }


def _has_arms(window: Window, by: float, arms: frozenset[str]) -> bool:
    """Whether each of the arms has a pod whose baseline was taken at or before `by`."""
    return arms == {pod.arm for pod in window.seen.values() if pod.since <= by}


def _plus(total: Counters, gained: Sequence[Counters]) -> Counters:
    return tuple(map(sum, zip(total, *gained, strict=True))) if gained else total
