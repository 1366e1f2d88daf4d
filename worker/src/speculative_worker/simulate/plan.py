"""PURE: what a simulated engine is told, read without pydantic.

The same JSON that the worker's `Settings` reads and checks: here only what the
simulated engine needs, so that its process stays small and starts at once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from speculative_worker.simulate.faults import BadFault, Fault, fault_from
from speculative_worker.simulate.metrics import Generation

_DEFAULT_CONTEXT: Final = 8192


class BadPlan(Exception):
    """The configuration does not describe a simulated engine; the message says why."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one step: `base + draft * k + token * batch * (k + 1)`."""

    base: float
    draft: float
    """For each token drafted in turn."""
    token: float
    """For each token verified, over the whole batch."""

    def seconds(self, *, batch: int, draft_tokens: int) -> float:
        """Time of a step of `batch` sequences that drafts `draft_tokens` for each."""
        return self.base + self.draft * draft_tokens + self.token * batch * (draft_tokens + 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulated engine; the defaults are those of the resource."""

    served_model_name: str
    max_num_seqs: int
    max_model_len: int = _DEFAULT_CONTEXT
    draft_tokens: int = 0
    """k; 0 without speculation."""
    acceptance_percent: int = 70
    acceptance_by_position: tuple[int, ...] = ()
    """Percent for each position, given that those before it were accepted; the last goes on."""
    tokens_per_second: int = 50
    step: StepTime | None = None
    """In place of `tokens_per_second`."""
    load_seconds: float = 0.5
    nodes: int = 1
    """Pods that run it together."""
    metric_names: Generation = "V1"
    faults: tuple[Fault, ...] = ()
    adaptive_online: bool = False
    min_acceptance_percent: int = 0
    schedule: tuple[tuple[int, int], ...] = ()
    """Last batch size of each range and its draft length; empty: always `draft_tokens`."""


def plan_from(text: str) -> Plan:
    """Reads `SPECULATIVE_WORKER_CONFIG`. Raises `BadPlan`."""
    try:
        document = json.loads(text)
        return _plan(document, document.get("simulation") or {})
    except (ValueError, TypeError, KeyError, AttributeError, BadFault) as error:
        raise BadPlan(f"the configuration cannot be read: {error!r}") from error


def _plan(document: Mapping[str, Any], simulation: Mapping[str, Any]) -> Plan:
    speculation = document["speculation"]
    drafts = speculation["method"] != "None"
    step = simulation.get("stepMicroseconds")
    adaptive = speculation.get("adaptive") or {}
    return Plan(
        served_model_name=str(document["servedModelName"]),
        max_num_seqs=int(document["maxNumSeqs"]),
        max_model_len=int(document.get("maxModelLen") or _DEFAULT_CONTEXT),
        draft_tokens=int(speculation.get("numSpeculativeTokens") or 0) if drafts else 0,
        acceptance_percent=int(simulation.get("acceptancePercent", 70)),
        acceptance_by_position=tuple(
            int(percent) for percent in simulation.get("acceptancePercentByPosition") or ()
        ),
        tokens_per_second=int(simulation.get("tokensPerSecond", 50)),
        step=StepTime(**{name: int(step.get(name, 0)) / 1e6 for name in ("base", "draft", "token")})
        if step
        else None,
        nodes=int(document.get("nodes") or 1),
        load_seconds=int(simulation.get("loadMilliseconds", 500)) / 1000,
        adaptive_online=adaptive.get("mode") == "Online",
        min_acceptance_percent=int(adaptive.get("minAcceptancePercent") or 0),
        schedule=tuple(
            (int(each["upToBatchSize"]), int(each["numSpeculativeTokens"]))
            for each in adaptive.get("schedule") or ()
        ),
        metric_names="V0" if simulation.get("metricNames") == "V0" else "V1",
        faults=(*_short_spellings(simulation), *map(fault_from, simulation.get("faults") or ())),
    )


def _short_spellings(simulation: Mapping[str, Any]) -> list[Fault]:
    """The faults that have a field of their own."""
    found = []
    if text := simulation.get("crashText"):
        found.append(fault_from({"kind": "Crash", "text": text}))
    if percent := simulation.get("errorPercent"):
        found.append(fault_from({"kind": "Errors", "percent": percent}))
    if seconds := simulation.get("stallAfterSeconds"):
        found.append(fault_from({"kind": "Stall", "afterSeconds": seconds}))
    return found
