"""The engines' own metrics as Prometheus scraped them, instead of asking every pod.

One query for counters, two more where a latency is judged: how many pods there
are changes the length of an answer and nothing else. The answer becomes one
page of metrics per pod, which is read like a page from an engine: the same table of
names, the same rules for half a page, NaN and impossible figures. Asking is
beside the passes; a server that is slow or away leaves the last answers, which
soon mean nothing.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from speculative_api.engine_metrics import ALIASES
from speculative_api.gateway import GatewayState
from speculative_api.v1alpha1 import Analysis, MetricName, PrometheusServer
from speculative_api.worker import Digest
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.plain import digest_of
from speculative_operator.metrics.prometheus import UNANSWERED, Place, Queries, problem_of
from speculative_operator.metrics.source import Source, Target
from speculative_operator.snapshot import Snapshot

LARGEST_ANSWER: Final = 32 * 1024 * 1024
"""Bytes; 1,000 pods with two engines each have about 3 MiB of counters."""
SHORTEST_INTERVAL: Final = 15.0
"""Seconds between two questions: Prometheus knows nothing newer than its last scrape."""
DIGEST_AGE: Final = 60.0
"""Seconds (or two and a half intervals) after which an answer no longer counts."""
FORGOTTEN_AFTER: Final = 600.0
"""Seconds after which a resource that nobody asks about is forgotten."""
SCRAPED_AFTER: Final = 120.0
"""Seconds after which a ready pod is expected to have been discovered and scraped."""
BUCKETS: Final = 8
"""Buckets from a latency's threshold on that are asked for: both revisions have one of them."""

_COUNTED: Final = (
    "requests_finished",
    "generated_tokens",
    "drafts",
    "draft_tokens",
    "accepted_tokens",
    "running",
    "waiting",
)
_EMITTED: Final = "vllm:spec_decode_num_emitted_tokens_total"
"""First-generation engines; see `engine_metrics`."""
_HISTOGRAMS: Final[Mapping[str, str]] = {
    MetricName.TIME_TO_FIRST_TOKEN: "time_to_first_token_seconds",
    MetricName.INTER_TOKEN_LATENCY: "output_token_seconds",
    MetricName.END_TO_END_LATENCY: "request_seconds",
}
_SERIES_OF_POD: Final = ("__name__", "pod", "engine", "model_name", "finished_reason", "le")
"""Labels of what an engine counts; all others are about who scraped it. Of two scrapes of one
engine the larger counts: their sum would fall like a restart when one of them ends."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]{0,63}")
_NUMBER: Final = re.compile(r"[+-]?(?:Inf|NaN|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]{1,4})?)")
_NAME: Final = re.compile(r"vllm:[a-z0-9_]{1,80}")


def counters_query(place: Place) -> str:
    """Everything that is counted, of all pods of a resource."""
    names = [name for canonical in _COUNTED for name in ALIASES[canonical]]
    return _summed(place, [*names, _EMITTED], by="__name__, pod, engine")


def bounds_query(place: Place, analysis: Analysis) -> str:
    """Which buckets the judged latencies have; empty where none is judged."""
    names = _buckets(analysis)
    return f"group by (__name__, le) ({_selected(place, names)})" if names else ""


def histograms_query(place: Place, analysis: Analysis, bounds: Mapping[str, Sequence[str]]) -> str:
    """The buckets from each judged latency's threshold on, of all pods; empty without any.

    `bounds` are those of each series' name, as they are written there.
    """
    chosen: set[str] = set()
    for check in analysis.metrics:
        for name in _of(check.name):
            least = (check.threshold_milliseconds or 0) / 1000
            fit = sorted(
                (bound for bound in bounds.get(name, ()) if float(bound) >= least), key=float
            )
            # The last one is infinity: how many there are in all.
            chosen |= {*fit[:BUCKETS], *fit[-1:]}
    if not chosen:
        return ""
    les = "|".join(re.escape(bound) for bound in sorted(chosen))
    # In a string of PromQL a backslash is written twice.
    more = f',le=~"{les}"'.replace("\\", "\\\\")
    return _summed(place, _buckets(analysis), by="__name__, pod, engine, le", more=more)


def _buckets(analysis: Analysis) -> list[str]:
    return [name for check in analysis.metrics for name in _of(check.name)]


def _of(metric: str) -> list[str]:
    canonical = _HISTOGRAMS.get(metric)
    return [f"{name}_bucket" for name in ALIASES[canonical]] if canonical else []


def _summed(place: Place, names: Sequence[str], *, by: str, more: str = "") -> str:
    return f"sum by ({by}) (max by ({', '.join(_SERIES_OF_POD)}) ({_selected(place, names, more)}))"


def _selected(place: Place, names: Sequence[str], more: str = "") -> str:
    namespace, name = place
    matched = "|".join(dict.fromkeys(names))
    pods = f"{name}-[0-9a-f]{{10}}-.+"
    return f'{{__name__=~"{matched}",namespace="{namespace}",pod=~"{pods}"{more}}}'


Answer = tuple[int, bytes]
"""HTTP status and body."""


@dataclass(slots=True)
class _Asked:
    asked: float = float("-inf")
    answered: float = float("-inf")
    interval: float = SHORTEST_INTERVAL
    problem: str = "Prometheus has not been asked yet"
    digests: dict[str, Digest] = field(default_factory=dict)
    """By the pod's UID."""
    task: asyncio.Task[None] | None = None


class Pages:
    """Last answers of all resources that are judged by Prometheus; `async with` ends the asking."""

    def __init__(self, queries: Queries, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._queries = queries
        self._clock = clock
        self._asked: dict[Place, _Asked] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for one in self._asked.values():
            if one.task is not None:
                one.task.cancel()
        await self.answered()

    def ask(self, place: Place, analysis: Analysis, targets: Iterable[Target]) -> None:
        """Asks about these pods if it is time; the answer is there at a later look."""
        now = self._clock()
        known = self._asked.setdefault(place, _Asked())
        known.interval = max(float(analysis.period_seconds), SHORTEST_INTERVAL)
        # A pass comes a little early now and then; half a second is no interval.
        if known.task is None and now - known.asked >= known.interval - 0.5:
            known.asked = now
            pods = {target.pod: target for target in targets}
            known.task = asyncio.create_task(self._measure(place, analysis, pods, known))
        for old in [p for p, one in self._asked.items() if now - one.asked > FORGOTTEN_AFTER]:
            del self._asked[old]

    async def answered(self) -> None:
        """Waits until every question that was asked has its answer."""
        tasks = [one.task for one in self._asked.values() if one.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def digest(self, place: Place, uid: str) -> Digest | None:
        """What the last answer said about a pod, if that is not too old to mean anything."""
        known = self._asked.get(place)
        return known.digests.get(uid) if known is not None and self._age(known) else None

    def problem(self, place: Place) -> str:
        """Why there are no figures; empty while there are."""
        known = self._asked.get(place)
        if known is None:
            return "Prometheus has not been asked yet"
        if known.problem:
            return known.problem
        return "" if self._age(known) else "Prometheus has said nothing new for too long"

    def _age(self, known: _Asked) -> bool:
        age = self._clock() - known.answered
        return age < max(DIGEST_AGE, 2.5 * known.interval)

    async def _measure(
        self, place: Place, analysis: Analysis, pods: Mapping[str, Target], known: _Asked
    ) -> None:
        server, at = analysis.prometheus, time.time()
        try:
            if server is None:
                raise NotReadable("analysis.prometheus is not set")
            answers = [await self._answer(place, server, counters_query(place))]
            if bounds := bounds_query(place, analysis):
                found = bounds_of(*await self._answer(place, server, bounds))
                if buckets := histograms_query(place, analysis, found):
                    answers.append(await self._answer(place, server, buckets))
            # Megabytes of text: other resources go on meanwhile.
            known.digests = await asyncio.to_thread(digests_of, answers, pods, at=at)
            known.answered = self._clock()
            known.problem = "" if known.digests else "Prometheus knows no engine of these pods"
        except UNANSWERED as error:
            known.problem = problem_of(error, server) if server is not None else str(error)
        finally:
            known.task = None

    async def _answer(self, place: Place, server: PrometheusServer, text: str) -> Answer:
        return await self._queries.answer(place[0], server, text, largest=LARGEST_ANSWER)


def bounds_of(status: int, body: bytes) -> dict[str, list[str]]:
    """The bounds of each name's buckets, as they are written.

    Raises:
        NotReadable: no answer of Prometheus with an instant vector.
    """
    found: dict[str, list[str]] = {}
    for labels, _ in _vector(status, body):
        name, bound = labels.get("__name__", ""), labels.get("le", "")
        if _NAME.fullmatch(name) and _NUMBER.fullmatch(bound):
            found.setdefault(name, []).append(bound)
    return found


def _vector(status: int, body: bytes) -> Iterator[tuple[dict[str, str], str]]:
    """Labels and value of every series of an instant vector.

    Raises:
        NotReadable: it is none.
    """
    if status != 200:
        raise NotReadable(f"Prometheus answered {status}")
    try:
        answer = json.loads(body)
        if answer["status"] != "success" or answer["data"]["resultType"] != "vector":
            raise NotReadable("the answer is not one of Prometheus")
        for one in answer["data"]["result"]:
            _, value = one["value"]
            labels = one["metric"]
            if not isinstance(value, str) or not all(isinstance(x, str) for x in labels.values()):
                raise NotReadable("the answer is not one of Prometheus")
            yield labels, value
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise NotReadable("the answer is not one of Prometheus") from error


def _line(labels: Mapping[str, str], value: str) -> str:
    """A line of an engine's page; empty for what no engine says."""
    name, engine, le = labels.get("__name__", ""), labels.get("engine", "0"), labels.get("le", "")
    if not _NAME.fullmatch(name) or not _PLAIN.fullmatch(engine):
        return ""
    if not _NUMBER.fullmatch(value) or (le and not _NUMBER.fullmatch(le)):
        return ""
    if not le:
        return f'{name}{{engine="{engine}"}} {value}\n'
    line = f'{name}{{engine="{engine}",le="{le}"}} {value}\n'
    if math.isinf(float(le)):
        # How many there are in all, which is a series of its own only where it was asked for.
        line += f'{name.removesuffix("_bucket")}_count{{engine="{engine}"}} {value}\n'
    return line


def digests_of(
    answers: Iterable[Answer], pods: Mapping[str, Target], *, at: float
) -> dict[str, Digest]:
    """A digest for each pod whose page can be read whole, by UID; `at` is unix seconds.

    Raises:
        NotReadable: an answer is none of Prometheus.
    """
    pages: dict[str, list[str]] = {}
    for status, body in answers:
        for labels, value in _vector(status, body):
            if labels.get("pod") in pods:
                pages.setdefault(labels["pod"], []).append(_line(labels, value))
    found = {}
    for pod, lines in pages.items():
        try:
            found[pods[pod].uid] = digest_of("".join(lines).encode(), pods[pod], at=at)
        except NotReadable:
            # Half a page is no page: its counters would fall, like those of a restart.
            continue
    return found


class FromPrometheus:
    """The `Source` of one resource: engines by Prometheus, gateways asked themselves."""

    def __init__(self, source: Source, pages: Pages, place: Place, analysis: Analysis) -> None:
        self._source, self._pages = source, pages
        self._place, self._analysis = place, analysis

    async def ask(self, targets: Iterable[Target]) -> None:
        """Asks the gateways, and does not wait for Prometheus."""
        listed = list(targets)
        workers = [target for target in listed if target.role == "worker"]
        self._pages.ask(self._place, self._analysis, workers)
        await self._source.ask(target for target in listed if target.role == "gateway")

    def digest(self, uid: str) -> Digest | None:
        """The engine's figures as Prometheus last had them."""
        return self._pages.digest(self._place, uid)

    def state(self, uid: str) -> GatewayState | None:
        """The gateway agent's last answer."""
        return self._source.state(uid)

    def silent_seconds(self, uid: str) -> float:
        """Of a gateway."""
        return self._source.silent_seconds(uid)


def unknown_pod(snapshot: Snapshot, *revisions: str) -> str:
    """Which pod has served for a while without figures, in words; empty: none."""
    now = snapshot.now.timestamp()
    for pod in snapshot.pods:
        if pod.revision not in revisions or pod.terminating or not pod.ready:
            continue
        if pod.digest is None and now - (pod.ready_at or now) > SCRAPED_AFTER:
            return f"Prometheus has no whole page of {pod.name}"
    return ""
