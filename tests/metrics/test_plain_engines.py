"""An engine without our worker is read by its own metrics; the samples' headers say how."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from speculative_api.worker import Digest
from speculative_operator.analysis.windows import Reading, Seen, increment
from speculative_operator.errors import NotReadable
from speculative_operator.metrics.plain import LARGEST_PAGE, digest_of
from speculative_operator.metrics.source import Target
from speculative_operator.metrics.workers import Scraper

SAMPLES = Path(__file__).parents[1] / "worker" / "samples"
CONFIGURED = {"v0-gauges": 4, "v1-spec-off-both-latency-names": None}


def page(name: str) -> bytes:
    return (SAMPLES / f"{name}.txt").read_bytes()


def read(text: bytes, k: int | None = 3, *, method: str = "NGram") -> Digest:
    return digest_of(text, Target("p", "10.0.0.1", "worker", method, k), at=50.0)


def sample(name: str) -> Digest:
    return read(page(name), CONFIGURED.get(name, 3))


@pytest.mark.parametrize(
    "name, drafts, drafted, accepted",
    [
        # The first generation counts accepted tokens behind a rejected one: emitted less steps.
        ("v0-gauges", 1000, 4000, 1750),
        ("v1-counters", 5000, 15000, 9000),
        ("v1-dp4-engines", 10500, 31500, 9765),
        ("v1-nan-inf", 0, 0, 0),
        ("v1-reset-1-before", 200, 600, 480),
        ("v1-spec-off-both-latency-names", None, None, None),
    ],
)
def test_counters_are_those_of_the_header(
    name: str, drafts: int | None, drafted: int | None, accepted: int | None
) -> None:
    found = sample(name)
    assert (found.drafts, found.draft_tokens, found.accepted_tokens) == (drafts, drafted, accepted)


@pytest.mark.parametrize(
    "name, length", [("v0-gauges", 2.75), ("v1-counters", 2.8), ("v1-dp4-engines", 1.93)]
)
def test_mean_length_is_that_of_the_header(name: str, length: float) -> None:
    found = sample(name)
    assert 1 + (found.accepted_tokens or 0) / (found.drafts or 1) == pytest.approx(length)


@pytest.mark.parametrize(
    "name, running, waiting",
    [
        ("v0-gauges", 6, 1),
        ("v1-counters", 9, 2),
        ("v1-dp4-engines", 34, 14),
        ("v1-nan-inf", 0, 0),
        ("v1-spec-off-both-latency-names", 4, 0),
    ],
)
def test_queues_are_those_of_the_header(name: str, running: int, waiting: int) -> None:
    assert (sample(name).running, sample(name).waiting) == (running, waiting)


def test_first_generation_without_k_has_no_accepted_tokens() -> None:
    found = read(page("v0-gauges"), None)
    assert (found.drafts, found.accepted_tokens) == (None, None)


@pytest.mark.parametrize(
    "name, source, count",
    [
        ("v0-gauges", "vllm:time_per_output_token_seconds", 2960),
        ("v1-spec-off-both-latency-names", "vllm:inter_token_latency_seconds", 10000),
    ],
)
def test_one_of_several_names_of_a_latency_is_used(name: str, source: str, count: int) -> None:
    itl = sample(name).itl
    assert itl is not None
    assert (itl.source, itl.count) == (source, count)


def test_beyond_the_last_bucket_is_slow_and_no_figure_is_infinite() -> None:
    ttft = sample("v1-nan-inf").ttft
    assert ttft is not None
    assert ttft.slow(2560.0) == 2


@pytest.mark.parametrize(
    "after, drafted, accepted",
    [("v1-reset-2-after-lower", 300, 180), ("v1-reset-3-after-higher", 2700, 540)],
    ids=["values fell", "values had overtaken the old ones"],
)
def test_a_restart_is_seen_by_its_start_time(after: str, drafted: int, accepted: int) -> None:
    before, now = sample("v1-reset-1-before"), sample(after)
    known = Seen("candidate", before.engine_started_at, 50, 50, 0, _counted(before))
    gained = increment(known, Reading("p", "candidate", now.engine_started_at, 110, _counted(now)))
    assert gained == (drafted, accepted)


def _counted(digest: Digest) -> tuple[int, ...]:
    assert digest.draft_tokens is not None
    assert digest.accepted_tokens is not None
    return digest.draft_tokens, digest.accepted_tokens


def test_without_a_process_start_the_counters_own_is_taken() -> None:
    lines = [x for x in page("v1-counters").splitlines() if not x.startswith(b"process_start")]
    assert read(b"\n".join(lines) + b"\n").engine_started_at == 1.76448000025e9


def test_how_it_drafts_is_told_by_the_revision() -> None:
    found = sample("v1-counters")
    assert (found.method, found.num_speculative_tokens, found.ready) == ("NGram", 3, True)


GOOD = page("v1-dp4-engines")
SECOND = b'generation_tokens_total{engine="1",model_name="team,a/target-8b \\"chat\\""} '
SECOND += GOOD.partition(SECOND)[2].partition(b"\n")[0] + b"\n"
LAST = b'vllm:spec_decode_num_accepted_tokens_total{engine="3"'


@pytest.mark.parametrize(
    "text, words",
    [
        pytest.param(b"", "middle of a line", id="empty"),
        pytest.param(GOOD[:5000], "middle of a line", id="half a line"),
        pytest.param(GOOD[: GOOD.index(SECOND) + len(SECOND)], "lack an engine", id="half a page"),
        pytest.param(
            GOOD.replace(LAST, b'other{engine="3"'), "lack an engine", id="an engine less"
        ),
        pytest.param(
            GOOD.replace(
                b'generation_tokens_total{engine="2"', b'generation_tokens_total{engine="2'
            ),
            "lack an engine",
            id="a torn label",
        ),
        pytest.param(
            b"".join(
                line
                for line in GOOD.splitlines(keepends=True)
                if not line.startswith(b'vllm:inter_token_latency_seconds_bucket{engine="2"')
            ),
            "lack an engine",
            id="a histogram of an engine less",
        ),
        pytest.param(b"<html>\n</html>\n", "no metrics", id="another page"),
        pytest.param(b"# nothing\n", "no metrics", id="no series"),
        pytest.param(b"\xff\xfe\n", "no text", id="no text"),
        pytest.param(
            b"vllm:num_requests_running 1\nvllm:generation_tokens_total 1e300\n",
            "can not be true",
            id="too many",
        ),
        pytest.param(
            b"vllm:num_requests_running NaN\nvllm:generation_tokens_total 5\n",
            "no metrics",
            id="NaN",
        ),
        pytest.param(
            b"vllm:num_requests_running 1\nvllm:generation_tokens_total +Inf\n",
            "no metrics",
            id="infinite",
        ),
    ],
)
def test_what_can_not_be_read_whole_is_no_answer(text: bytes, words: str) -> None:
    with pytest.raises(NotReadable, match=words):
        read(text)


def test_what_a_cut_page_lacks_is_absent_and_not_zero() -> None:
    found = read(GOOD[: GOOD.rindex(b"\n", 0, GOOD.index(b"vllm:spec_decode")) + 1])
    assert found.generated_tokens
    assert (found.draft_tokens, found.accepted_tokens) == (None, None)


def test_a_page_made_to_be_slow_is_read_all_the_same() -> None:
    labels = 'a="' + "\\\\" * 1500
    hostile = (f"vllm:num_requests_running{{{labels} 1\n" * 300).encode()
    hostile += b"vllm:x{" + b'a="b",' * 100_000 + b"} 1\n"
    with pytest.raises(NotReadable, match="no metrics"):
        read(hostile)


class Pod:
    """A pod with an engine and, maybe, a worker; either may be away."""

    def __init__(self) -> None:
        self.text = page("v1-counters")
        self.has_worker = False
        self.asked: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if request.path == "/metrics":
            return web.Response(body=self.text)
        if not self.has_worker:
            raise web.HTTPNotFound
        digest = {"ready": True, "engineStartedAt": 1.0, "sampledAt": 2.0, "method": "NGram"}
        return web.json_response(digest | {"generatedTokens": 7})


@asynccontextmanager
async def a_scraper(pod: Pod, *, worker_port: int | None = None) -> AsyncIterator[Scraper]:
    application = web.Application()
    application.router.add_get("/{path:.*}", pod.handle)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        async with Scraper(
            timeout_seconds=5, worker_port=worker_port or port, engine_port=port
        ) as scraper:
            yield scraper
    finally:
        await runner.cleanup()


async def ask(scraper: Scraper) -> Digest | None:
    await scraper.ask([Target("p", "127.0.0.1", "worker", "NGram", 3)])
    return scraper.digest("p")


async def test_a_pod_without_a_digest_is_read_by_its_engine() -> None:
    pod = Pod()
    async with a_scraper(pod) as scraper:
        found = await ask(scraper)
    assert found is not None
    assert (found.accepted_tokens, found.method, found.num_speculative_tokens) == (9000, "NGram", 3)
    assert pod.asked == ["/digest", "/metrics"]


async def test_a_closed_port_is_no_digest_either() -> None:
    async with a_scraper(Pod(), worker_port=1) as scraper:
        found = await ask(scraper)
    assert found is not None
    assert found.accepted_tokens == 9000


async def test_where_a_worker_serves_nobody_asks_the_engine() -> None:
    pod = Pod()
    pod.has_worker = True
    async with a_scraper(pod) as scraper:
        found = await ask(scraper)
    assert found is not None
    assert found.generated_tokens == 7
    assert pod.asked == ["/digest"]


async def test_a_page_beyond_the_bound_is_no_answer() -> None:
    pod = Pod()
    pod.text = page("v1-counters") + b"# x\n" * (LARGEST_PAGE // 4)
    async with a_scraper(pod) as scraper:
        assert await ask(scraper) is None
