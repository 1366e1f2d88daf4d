"""What one look costs and how large the evidence gets: ten pods, an hour."""

import json
import time
from typing import Final

import numpy as np
from bench.analysis_batch import FIVE_TESTS

from speculative_api.gateway import ClusterState, GatewayState
from speculative_api.v1alpha1 import Analysis, MetricCheck
from speculative_api.worker import Digest, Latency
from speculative_operator.analysis.queried import Measurement
from speculative_operator.analysis.verdict import Evidence, Sample, begin, observe, tell
from speculative_operator.cluster.evidence import packed
from speculative_operator.snapshot import GatewayPod, WorkerPod

NEW, OLD = "a01c000000", "6f9d000000"
BOUNDS: Final = tuple(round(0.01 * 1.6**step, 4) for step in range(20))
LOOKS: Final = 720
EIGHT_METRICS: Final = Analysis(
    metrics=[
        *FIVE_TESTS.metrics[:4],
        *(
            MetricCheck.model_validate(check)
            for check in (
                {"name": "AcceptanceRate"},
                {"name": "TokensPerSecond"},
                {"name": "Restarts"},
                {"name": "utilisation", "prometheus": {"query": "avg(x)", "min": "70"}},
            )
        ),
    ]
)


def _histogram(requests: int, slow: int) -> Latency:
    counts = tuple(requests - slow if bound < 9 else requests for bound in BOUNDS)
    return Latency(source="vllm:x", bounds_seconds=BOUNDS, counts=counts, count=requests)


def _pod(index: int, look: int, rng: np.random.Generator) -> WorkerPod:
    requests = 12 * look + int(rng.integers(0, 3))
    latency = _histogram(requests, requests // 20)
    return WorkerPod(
        name=f"pod-{index}",
        uid=f"{index:036d}",
        revision=NEW if index < 2 else OLD,
        ready=True,
        ready_at=0.0,
        digest=Digest(
            ready=True,
            engine_started_at=0.0,
            sampled_at=5.0 * look,
            method="NGram",
            num_speculative_tokens=4,
            requests_finished=requests,
            generated_tokens=120 * requests,
            draft_tokens=160 * requests,
            accepted_tokens=80 * requests + look % 7,
            running=8,
            waiting=0,
            ttft=latency,
            itl=latency,
            e2e=latency,
        ),
    )


def _gateway(look: int) -> GatewayPod:
    clusters = tuple(
        ClusterState(
            hash=each,
            weight=50,
            endpoints=5,
            active=1,
            responses={"2xx": 60 * look, "5xx": look // 9},
        )
        for each in (NEW, OLD)
    )
    state = GatewayState(envoy_started_at=0.0, sampled_at=5.0 * look, clusters=clusters)
    return GatewayPod(name="g", uid="g", ready=True, state=state)


def measured_cost() -> dict[str, float]:
    """Milliseconds of processor time per look (median, 99th) and bytes of the evidence."""
    found: dict[str, float] = {}
    for words, analysis in (("five metrics", FIVE_TESTS), ("eight metrics", EIGHT_METRICS)):
        evidence, spent = _looked(analysis)
        text = json.dumps(evidence.to_json(), separators=(",", ":"), sort_keys=True)
        found |= {
            f"{words}: milliseconds per look, median": float(np.median(spent)),
            f"{words}: milliseconds per look, 99th percentile": float(np.percentile(spent, 99)),
            f"{words}: bytes of evidence": float(len(text)),
            f"{words}: bytes as stored": float(len(packed(text))),
        }
    return found


def _looked(analysis: Analysis) -> tuple[Evidence, list[float]]:
    rng = np.random.default_rng(1)
    evidence = begin("bench", analysis, at=0.0)
    told, spent = None, []
    for look in range(1, LOOKS + 1):
        at = 1000.0 + 5 * look
        sample = Sample(
            at=at,
            weight=50,
            candidate=NEW,
            control=OLD,
            pods=tuple(_pod(index, look, rng) for index in range(10)),
            gateways=(_gateway(look),),
            measurements={"utilisation": Measurement(at, value=80.0)},
        )
        began = time.process_time()
        evidence = observe(evidence, sample)
        told = tell(evidence, told)
        spent.append(1000 * (time.process_time() - began))
    return evidence, spent
