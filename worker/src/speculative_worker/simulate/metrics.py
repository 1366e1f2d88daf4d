"""The simulated engine's counters, rendered under vLLM's names.

`V1` are the names of vLLM 0.32.0, `V0` those of the first engine generation
(gauges for acceptance, no drafts, no positions). Without speculation there are
no spec-decode families at all, as in vLLM.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator
from typing import Final, Literal

_TTFT_BOUNDS: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 40.0, 160.0)
_ITL_BOUNDS: Final = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.4, 0.75, 1.0, 2.5, 10.0)
_E2E_BOUNDS: Final = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
FINISHED_REASONS: Final = ("stop", "length", "abort", "error")
Generation = Literal["V1", "V0"]


class Histogram:
    """Counts of seconds by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one observation."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """The series of this histogram."""
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, count in zip((*self._bounds, "+Inf"), self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self._sum!r}"
        yield f"{name}_count{{{labels}}} {total}"


class EngineMetrics:
    """What one simulated engine counts; `running` and `waiting` are gauges."""

    def __init__(self, *, model_name: str, max_draft_tokens: int) -> None:
        self._model_name = model_name.replace("\\", r"\\").replace('"', r"\"")
        self._max_draft_tokens = max_draft_tokens
        self.running = 0
        self.waiting = 0
        self.reset()

    def reset(self) -> None:
        """Begins all counters anew, as a restarted engine does."""
        self._positions = [0] * self._max_draft_tokens
        self.prompt_tokens = 0
        self.generated_tokens = 0
        self.drafts = 0
        self.draft_tokens = 0
        self.accepted_tokens = 0
        self.finished = dict.fromkeys(FINISHED_REASONS, 0)
        self.time_to_first_token = Histogram(_TTFT_BOUNDS)
        self.inter_token = Histogram(_ITL_BOUNDS)
        self.request_per_token = Histogram(_ITL_BOUNDS)
        self.request = Histogram(_E2E_BOUNDS)

    def count_draft(self, *, drafted: int, accepted: int) -> None:
        """Counts one draft of which the first `accepted` tokens were taken."""
        self.drafts += 1
        self.draft_tokens += drafted
        self.accepted_tokens += accepted
        for position in range(accepted):
            self._positions[position] += 1

    def count_finished(
        self, *, seconds: float, decoding_seconds: float, decoded_tokens: int
    ) -> None:
        """Counts a finished request: its whole time, and its time per token after the first step.

        An answer of a single step has no time per token.
        """
        self.request.observe(seconds)
        if decoded_tokens > 0:
            self.request_per_token.observe(decoding_seconds / decoded_tokens)

    def render(self, *, generation: Generation, max_num_seqs: int) -> str:
        """The text of `/metrics`."""
        usage = self.running / max_num_seqs
        second = generation == "V1"
        engine = 'engine="0",' if second else ""
        labels = f'{engine}model_name="{self._model_name}"'
        cache = "vllm:kv_cache_usage_perc" if second else "vllm:gpu_cache_usage_perc"
        lines = [
            *_one("vllm:num_requests_running", "gauge", labels, self.running),
            *_one("vllm:num_requests_waiting", "gauge", labels, self.waiting),
            *_one(cache, "gauge", labels, usage),
            *_one("vllm:prompt_tokens_total", "counter", labels, self.prompt_tokens),
            *_one("vllm:generation_tokens_total", "counter", labels, self.generated_tokens),
            "# TYPE vllm:request_success_total counter",
        ]
        for reason, count in self.finished.items():
            lines.append(
                f'vllm:request_success_total{{{labels},finished_reason="{reason}"}} {count}'
            )
        lines += self.time_to_first_token.lines("vllm:time_to_first_token_seconds", labels)
        lines += self.request.lines("vllm:e2e_request_latency_seconds", labels)
        lines += self._second(labels) if second else self._first(labels)
        return "\n".join([*lines, ""])

    def _second(self, labels: str) -> Iterator[str]:
        yield from self.inter_token.lines("vllm:inter_token_latency_seconds", labels)
        name = "vllm:request_time_per_output_token_seconds"
        yield from self.request_per_token.lines(name, labels)
        if not self._positions:
            return
        prefix = "vllm:spec_decode_num"
        yield from _one(f"{prefix}_drafts_total", "counter", labels, self.drafts)
        yield from _one(f"{prefix}_draft_tokens_total", "counter", labels, self.draft_tokens)
        yield from _one(f"{prefix}_accepted_tokens_total", "counter", labels, self.accepted_tokens)
        yield f"# TYPE {prefix}_accepted_tokens_per_pos_total counter"
        for position, count in enumerate(self._positions):
            at = f'{labels},position="{position}"'
            yield f"{prefix}_accepted_tokens_per_pos_total{{{at}}} {count}"

    def _first(self, labels: str) -> Iterator[str]:
        yield from self.inter_token.lines("vllm:time_per_output_token_seconds", labels)
        if not self._positions:
            return
        emitted = self.accepted_tokens + self.drafts
        possible = self.draft_tokens + self.drafts
        prefix = "vllm:spec_decode"
        rate = self.accepted_tokens / self.draft_tokens if self.draft_tokens else 0.0
        efficiency = emitted / possible if possible else 0.0
        yield from _one(f"{prefix}_draft_acceptance_rate", "gauge", labels, rate)
        yield from _one(f"{prefix}_efficiency", "gauge", labels, efficiency)
        for name, value in (
            ("accepted_tokens", self.accepted_tokens),
            ("draft_tokens", self.draft_tokens),
            ("emitted_tokens", emitted),
        ):
            yield from _one(f"{prefix}_num_{name}_total", "counter", labels, value)


def only(page: str, names: Collection[str]) -> str:
    """Those series of a page, as vLLM's `/metrics/?name[]=…` has them."""
    lines = page.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("{")[0] in names)


def _one(name: str, kind: str, labels: str, value: float) -> Iterator[str]:
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{labels}}} {value}"
