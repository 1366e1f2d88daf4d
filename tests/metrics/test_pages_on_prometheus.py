"""Engines read through a real Prometheus are what they are when they are read themselves."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.metrics.a_prometheus import Engines, scraping
from tests.metrics.test_plain_engines import page
from tests.metrics.test_prometheus import no_secret

from speculative_api.v1alpha1 import Analysis
from speculative_api.worker import Digest
from speculative_operator.metrics.pages import Pages
from speculative_operator.metrics.plain import digest_of
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.metrics.source import Target

pytestmark = pytest.mark.slow

PLACE = ("llm", "chat")
SAMPLES = {"6f9d000000": ["v0-gauges", "v1-counters"], "a01c000000": ["v1-dp4-engines"]}
TWICE = {"pods": "10.0.0.1:8000", "services": "chat:8000"}
CALM = {
    "name": "TimeToFirstToken",
    "thresholdMilliseconds": 500,
}


def target(pod: str) -> Target:
    return Target(f"uid-{pod}", "10.0.0.1", "worker", "NGram", 4 if "v0" in pod else 3, pod)


def an_analysis(address: str) -> Analysis:
    metrics = [{"name": "AcceptanceLength"}, {"name": "ErrorRate"}, CALM]
    known = {"source": "Prometheus", "prometheus": {"address": address, "timeoutSeconds": 30}}
    return Analysis.model_validate({"metrics": metrics, **known})


class Asking:
    """Looks that are far enough apart for another question."""

    def __init__(self, queries: Queries, address: str, pods: list[str]) -> None:
        self.now = 0.0
        self.pages = Pages(queries, clock=lambda: self.now)
        self.analysis, self.targets = an_analysis(address), [target(pod) for pod in pods]

    async def look(self) -> dict[str, Digest]:
        self.now += 15.0
        self.pages.ask(PLACE, self.analysis, self.targets)
        await self.pages.answered()
        found = {t.pod: self.pages.digest(PLACE, t.uid) for t in self.targets}
        return {pod: digest for pod, digest in found.items() if digest is not None}

    async def until(self, reached: Callable[[dict[str, Digest]], bool]) -> dict[str, Digest]:
        for _ in range(300):
            found = await self.look()
            if reached(found):
                return found
            # Prometheus scrapes by its own clock.
            await asyncio.sleep(0.2)
        raise AssertionError(f"not reached: {found} {self.pages.problem(PLACE)}")


def counted(digest: Digest) -> dict[str, object]:
    names = ("requests_finished", "generated_tokens", "accepted_tokens", "draft_tokens", "drafts")
    return {name: getattr(digest, name) for name in (*names, "running", "waiting")}


async def test_what_was_scraped_twice_counts_once_and_half_a_page_is_none(tmp_path: Path) -> None:
    pods = {
        f"chat-{revision}-{name.replace('_', '-')}": page(name)
        for revision, names in SAMPLES.items()
        for name in names
    }
    engines = Engines(pages=dict(pods))
    engines.pages["chatter-6f9d000000-x"] = page("v1-counters")
    async with (
        scraping(engines, tmp_path, namespace="llm", jobs=TWICE) as address,
        Queries(no_secret) as queries,
    ):
        asking = Asking(queries, address, list(pods))
        found = await asking.until(lambda f: len(f) == len(pods))
        for pod, text in pods.items():
            direct = digest_of(text, target(pod), at=0.0)
            assert counted(found[pod]) == counted(direct), pod
            read, own = found[pod].ttft, direct.ttft
            if own is not None:
                assert read is not None
                bound = min(b for b in own.bounds_seconds if b >= 0.5)
                assert read.slow(bound) == own.slow(bound)
                assert read.count == own.count
        assert asking.pages.problem(PLACE) == ""
        gone = next(iter(pods))
        engines.pages[gone] = None
        found = await asking.until(lambda f: gone not in f)
        assert len(found) == len(pods) - 1
