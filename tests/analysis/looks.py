"""A made-up trial: pods and gateways whose counters the test turns, and looks at them."""

import json
from dataclasses import dataclass, field

from speculative_api.gateway import ClusterState, GatewayState, KindState, ShadowState
from speculative_api.v1alpha1 import Analysis
from speculative_api.worker import Digest, Termination
from speculative_operator.analysis import Evidence, Sample, begin, observe
from speculative_operator.analysis.failing import SHARE
from speculative_operator.snapshot import GatewayPod, WorkerPod

CANDIDATE, CONTROL = "a01c000000", "6f9d000000"
NEEDED = 200 / (1 - SHARE)
"""Evidence that two tests need at 1 %, less the hard guard's part."""


@dataclass
class Engine:
    """One worker pod's counters since its start; `None` stands for an absent counter."""

    revision: str
    uid: str
    method: str = "NGram"
    started_at: float = 0.0
    requests: int | None = 0
    generated: int | None = 0
    accepted: int | None = 0
    drafted: int | None = 0
    k: int | None = 4
    running: int | None = None
    waiting: int | None = None
    restarts: int = 0
    end: Termination | None = None
    silent: bool = False
    gone: bool = False

    def serve(self, requests: int, steps: int, accepted: int, drafted: int | None = None) -> None:
        self.requests = (self.requests or 0) + requests
        self.generated = (self.generated or 0) + steps + accepted
        self.accepted = (self.accepted or 0) + accepted
        self.drafted = (self.drafted or 0) + (4 * steps if drafted is None else drafted)

    def restart(self, at: float) -> None:
        self.started_at = at
        self.requests = self.generated = self.accepted = self.drafted = 0

    def pod(self, at: float) -> WorkerPod:
        digest = Digest(
            ready=True,
            engine_started_at=self.started_at,
            sampled_at=at,
            method=self.method,
            num_speculative_tokens=self.k,
            running=self.running,
            waiting=self.waiting,
            requests_finished=self.requests,
            generated_tokens=self.generated,
            draft_tokens=self.drafted,
            accepted_tokens=self.accepted,
        )
        return WorkerPod(
            name=self.uid,
            uid=self.uid,
            revision=self.revision,
            ready=True,
            ready_at=self.started_at,
            restarts=self.restarts,
            termination=self.end,
            digest=None if self.silent else digest,
        )


@dataclass
class Proxy:
    """One gateway pod; per cluster hash: 2xx, 4xx, 5xx, cut."""

    uid: str = "gateway"
    started_at: float = 0.0
    silent: bool = False
    copies: list[int] | None = None
    """The same of the candidate's copies; None: it has none."""
    counts: dict[str, list[int]] = field(
        default_factory=lambda: {CANDIDATE: [0, 0, 0, 0], CONTROL: [0, 0, 0, 0]}
    )

    kinds: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    """By cluster hash and kind of request: 2xx, 5xx, cut."""

    def answer_kind(self, revision: str, kind: str, good: int = 0, bad: int = 0, cut: int = 0):
        """Answers to a kind of requests, which are answers all the same."""
        self.answer(revision, good=good + cut, bad=bad, cut=cut)
        counts = self.kinds.setdefault((revision, kind), [0, 0, 0])
        for index, more in enumerate((good + cut, bad, cut)):
            counts[index] += more

    def answer(self, revision: str, good: int = 0, client: int = 0, bad: int = 0, cut: int = 0):
        for index, more in enumerate((good, client, bad, cut)):
            self.counts[revision][index] += more

    def pod(self, at: float) -> GatewayPod:
        clusters = tuple(
            ClusterState(
                hash=revision,
                weight=50,
                endpoints=1,
                active=0,
                responses={"2xx": good, "4xx": client, "5xx": bad},
                cut=cut,
                kinds={
                    kind: KindState(responses={"2xx": fine, "5xx": failed}, cut=broken)
                    for (of, kind), (fine, failed, broken) in self.kinds.items()
                    if of == revision
                },
                shadow=self._shadow() if revision == CANDIDATE else None,
            )
            for revision, (good, client, bad, cut) in self.counts.items()
        )
        state = GatewayState(
            envoy_started_at=self.started_at, sampled_at=at, ready=True, clusters=clusters
        )
        return GatewayPod(
            name=self.uid, uid=self.uid, ready=True, state=None if self.silent else state
        )

    def _shadow(self) -> ShadowState | None:
        if self.copies is None:
            return None
        good, client, bad, cut = self.copies
        responses = {"2xx": good, "4xx": client, "5xx": bad}
        return ShadowState(percent=10, active=0, responses=responses, cut=cut, skipped=1000)


class Trial:
    """Looks every 10 s at what the test lets happen in between."""

    def __init__(
        self,
        *,
        engines: list[Engine] | None = None,
        proxies: list[Proxy] | None = None,
        analysis: Analysis | None = None,
    ):
        self.engines = engines or [Engine(CANDIDATE, "new"), Engine(CONTROL, "old")]
        self.proxies = proxies or [Proxy()]
        self.analysis = analysis or Analysis()
        self.at = 1000.0
        self.weight = 50
        self.sticky = False
        self.shadow = False
        self.evidence: Evidence = begin("r2", self.analysis, at=self.at)
        self.look(0)

    @property
    def new(self) -> Engine:
        return self.engines[0]

    @property
    def old(self) -> Engine:
        return self.engines[1]

    def sample(self) -> Sample:
        return Sample(
            at=self.at,
            weight=self.weight,
            candidate=CANDIDATE,
            control=CONTROL,
            pods=tuple(engine.pod(self.at) for engine in self.engines if not engine.gone),
            gateways=tuple(proxy.pod(self.at) for proxy in self.proxies),
            period_seconds=self.analysis.period_seconds,
            sticky=self.sticky,
            shadow=self.shadow,
        )

    def look(self, seconds: float = 10.0) -> Evidence:
        self.at += seconds
        self.evidence = observe(self.evidence, self.sample())
        return self.evidence

    def reload(self) -> None:
        text = json.dumps(self.evidence.to_json())
        self.evidence = Evidence.from_json(json.loads(text))
