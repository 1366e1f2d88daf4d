"""The scheduler's mixin over a stand-in with vLLM's own names: what it reads, sets and says."""

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from speculative_worker.adaptive.hook import AdaptiveMixin, Unsupported
from speculative_worker.adaptive.report import VARIABLE


@dataclass
class Output:
    """SchedulerOutput's fields that are read."""

    num_scheduled_tokens: dict[str, int]
    scheduled_spec_decode_tokens: dict[str, list[int]]
    num_spec_tokens_to_schedule: int
    scheduled_new_reqs: list[Any] = field(default_factory=list)


class Scheduler:
    """One step after the other, as vLLM 0.32.0 does; `depth` steps are on their way at once."""

    num_spec_tokens = 4

    def __init__(self, table, *, requests=1, accepted=4, depth=1, deaf=False):
        self.dynamic_sd_lookup = table
        self.requests, self.accepted, self.depth, self.deaf = requests, accepted, depth, deaf
        self.found_drafts = True
        self._width = 0
        self.asked = []

    def schedule(self):
        width = self._width if self.found_drafts else 0
        names = [f"r{number}" for number in range(self.requests)]
        k = 4 if self.deaf else self.dynamic_sd_lookup[self.requests]
        self.asked.append(k)
        self._width = k
        drafts = {name: [-1] * width for name in names} if width else {}
        return Output(dict.fromkeys(names, 1 + width), drafts, k)

    def update_from_output(self, output, model_output):
        for name, drafts in output.scheduled_spec_decode_tokens.items():
            self.make_spec_decoding_stats(
                None,
                num_draft_tokens=len(drafts),
                num_accepted_tokens=min(self.accepted, len(drafts)),
                num_invalid_spec_tokens=None,
                request_id=name,
            )
        return model_output

    def make_spec_decoding_stats(self, stats, **_):
        return stats


class Clock:
    """Moves by what a step costs."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(AdaptiveMixin, "clock", staticmethod(found))
    return found


class Adaptive(AdaptiveMixin, Scheduler):
    """The combination under test."""


def run(scheduler, clock, steps, *, seconds=lambda k: 0.02 + 0.005 * k):
    """Steps in order, `depth` of them begun before the first one's outcome is known."""
    waiting = []
    for _ in range(steps):
        waiting.append(scheduler.schedule())
        if len(waiting) < scheduler.depth:
            continue
        output = waiting.pop(0)
        clock.now += seconds(output.num_spec_tokens_to_schedule)
        assert scheduler.update_from_output(output, "result") == "result"


@pytest.mark.parametrize("table", [None, []])
def test_an_engine_that_dropped_the_schedule_is_refused(table):
    with pytest.raises(Unsupported, match="data parallelism"):
        Adaptive(table)


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("accepted, ends", [(4, 4), (0, 0)])
def test_the_table_follows_what_is_accepted(clock, depth, accepted, ends):
    scheduler = Adaptive([0] + [4] * 8, accepted=accepted, depth=depth)
    run(scheduler, clock, 800)
    usual = max(set(scheduler.asked[400:]), key=scheduler.asked[400:].count)
    assert usual == ends


def test_requests_without_a_draft_count_as_rejected(clock):
    scheduler = Adaptive([0] + [4] * 8)
    scheduler.found_drafts = False
    run(scheduler, clock, 400, seconds=lambda k: 0.02 + 0.001 * k)
    assert scheduler.asked[-1] == 0


def test_steps_with_a_prompt_in_them_have_no_time_of_their_own(clock):
    scheduler = Adaptive([0] + [4] * 8)
    for _ in range(50):
        output = scheduler.schedule()
        output.num_scheduled_tokens["new"] = 512
        clock.now += 1.0
        scheduler.update_from_output(output, None)
    run(scheduler, clock, 3)
    assert scheduler._controller._buckets[0].cost.level < 0.1


def test_the_state_says_length_gain_and_how_long_it_is_0(clock, tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    told = {"state": str(path), "minAcceptancePercent": 0}
    monkeypatch.setenv(VARIABLE, json.dumps(told))
    scheduler = Adaptive([0] + [4] * 8)
    run(scheduler, clock, 600)
    found = json.loads(path.read_text())
    assert found["tokens"] == 4
    assert found["gainPercent"] > 100
    assert found["zeroSeconds"] == 0
    assert found["obeyed"] is True
    scheduler.accepted = 0
    run(scheduler, clock, 2000)
    found = json.loads(path.read_text())
    assert (found["tokens"], found["gainPercent"]) == (0, 0)
    assert found["zeroSeconds"] >= 0


def test_an_engine_that_does_not_obey_is_told_on(clock, tmp_path, monkeypatch):
    path = tmp_path / "state.json"
    monkeypatch.setenv(VARIABLE, json.dumps({"state": str(path)}))
    scheduler = Adaptive([0] + [4] * 8, accepted=0, deaf=True)
    run(scheduler, clock, 400)
    assert json.loads(path.read_text())["obeyed"] is False


def test_a_state_that_cannot_be_written_stops_nothing(clock, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, json.dumps({"state": str(tmp_path / "gone" / "state.json")}))
    run(Adaptive([0] + [4] * 8), clock, 100)


def test_a_step_whose_outcome_never_came_is_left_behind(clock):
    scheduler = Adaptive([0] + [4] * 8)
    scheduler.schedule()
    run(scheduler, clock, 50)
    assert not scheduler._scheduled


def test_a_schedule_of_unequal_lengths_is_overwritten_everywhere(clock):
    scheduler = Adaptive([0, 0, 1, 2, 3, *[4] * 96], accepted=0)
    assert scheduler.dynamic_sd_lookup[1:] == [4] * 100
    run(scheduler, clock, 400)
    assert scheduler.dynamic_sd_lookup[1] in (0, 1)
