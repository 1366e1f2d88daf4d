"""Golden cases: `<case>/input.yaml` describes a world, `output.yaml` is every object rendered.

Keys of an input: `revisions` (name -> spec as a user writes it), `asked` (the
one the resource holds now), `stable`/`canary` (names), `copies`, `stored` (names whose
ControllerRevision exists), `scales`, `shares`, `native` (old native pods),
`ready` (names of revisions with a ready pod), `idle` (that part of status),
`checked`/`downloaded` (the one that a Job is for). An input with `members` (name -> its
`gateway`) is of a shared gateway, `authorities` vouch for engines there.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.builders import NAME, a_deployment, a_pod, a_record, a_snapshot, a_status, stamp

from speculative_api.v1alpha1 import Gateway, SpeculativeDeploymentSpec
from speculative_operator.decision import Copies, Decision, Scale, Share
from speculative_operator.desired.membership import (
    accesses_in,
    agreed,
    candidate,
    settings_in,
)
from speculative_operator.desired.objects import desired_objects
from speculative_operator.desired.revision import native_words, words_of
from speculative_operator.desired.shared_gateway import shared_objects
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Snapshot, Words

FOLDER = Path(__file__).parent
HEADER = "# Written by `python -m tests.golden`; review it as a diff.\n"
SETTINGS = Settings(gateway_image="gateway:1", worker_image="worker:1")


def names() -> list[str]:
    """All cases."""
    return sorted(path.parent.name for path in FOLDER.glob("*/input.yaml"))


def of_one_resource() -> list[str]:
    """Cases that are a world and a decision."""
    texts = {name: (FOLDER / name / "input.yaml").read_text("utf-8") for name in names()}
    # Asked while tests are collected: parsing all of them for one key takes seconds.
    return [name for name, text in texts.items() if "\nmembers:" not in f"\n{text}"]


def world(case: str) -> tuple[Snapshot, Decision]:
    """The snapshot and the decision that an input describes."""
    raw = yaml.safe_load((FOLDER / case / "input.yaml").read_text("utf-8"))
    specs = {
        name: SpeculativeDeploymentSpec.model_validate(spec)
        for name, spec in raw["revisions"].items()
    }
    words = {name: words_of(spec) for name, spec in specs.items()}
    native = {name: native_words(found) for name, found in words.items()}
    stored = raw.get("stored", [])
    status = a_status(
        stable=words[raw["stable"]] if "stable" in raw else None,
        canary=words[raw["canary"]] if "canary" in raw else None,
        available=raw.get("available", True),
        **({"idle": raw["idle"]} if "idle" in raw else {}),
        **_preflight(raw, words),
    )
    lane = raw.get("native", [])
    snapshot = a_snapshot(
        specs[raw["asked"]],
        status=status,
        revisions=[_stored(words[name], number=i + 1) for i, name in enumerate(stored)]
        + [_stored(native[name]) for name in lane],
        deployments=[a_deployment(words[name]) for name in stored]
        + [a_deployment(native[name], track="native") for name in lane],
        pods=_pods(raw, words, native),
    )
    return snapshot, _decision(raw, words, status=status)


def _preflight(raw: Mapping[str, Any], words: Mapping[str, Words]) -> dict[str, Any]:
    for key, stage in (("checked", "Check"), ("downloaded", "Download")):
        if key in raw:
            entry = {"hash": words[raw[key]].hash, "startedAt": stamp(), "stage": stage}
            return {"preflight": entry}
    return {}


def _stored(words: Words, number: int = 1) -> RevisionRecord:
    """A revision that an older operator rendered, with the worker image of its time."""
    template = pod_template(words, name=NAME, settings=Settings(worker_image="worker:0"))
    return a_record(words, number=number, template=template)


def _pods(raw: Mapping[str, Any], words: Mapping[str, Words], native: Mapping[str, Words]) -> Any:
    ready = [words[name] for name in raw.get("ready", [])]
    return [a_pod(found) for found in (*ready, *(native[name] for name in raw.get("native", [])))]


def _decision(raw: Mapping[str, Any], words: Mapping[str, Words], *, status: Any) -> Decision:
    return Decision(
        status=status,
        transition=False,
        scales=tuple(
            Scale(words[item["revision"]].hash, item["track"], item["replicas"])
            for item in raw.get("scales", [])
        ),
        shares=tuple(
            Share(words[item["revision"]].hash, item["weight"]) for item in raw.get("shares", [])
        ),
        copies=_copies(raw.get("copies"), words),
    )


def _copies(raw: Mapping[str, Any] | None, words: Mapping[str, Words]) -> Copies | None:
    return None if raw is None else Copies(words[raw["revision"]].hash, raw["percent"], raw["most"])


def _shared(raw: Mapping[str, Any]) -> Any:
    candidates = [
        candidate(name, f"uid-{name}", "2026-11-30T12:00:00Z", Gateway.model_validate(said))
        for name, said in raw["members"].items()
    ]
    shared = agreed(candidates, None, raw["gateway"])
    assert shared is not None
    wanted = settings_in(shared.settings, raw["gateway"])
    accesses = accesses_in(shared, raw["gateway"])
    assert wanted is not None
    assert accesses is not None
    return shared_objects(
        shared,
        wanted,
        SETTINGS,
        accesses=accesses,
        name=raw["gateway"],
        namespace="llm",
        vouching=tuple(raw.get("authorities", ())),
    )


def rendered(case: str) -> str:
    """All objects of a case as YAML documents."""
    raw = yaml.safe_load((FOLDER / case / "input.yaml").read_text("utf-8"))
    bodies = _shared(raw) if "members" in raw else desired_objects(*world(case), SETTINGS)
    return HEADER + yaml.dump_all(bodies, Dumper=_Plain, sort_keys=False, width=100)


class _Plain(yaml.SafeDumper):
    """Writes shared parts out instead of anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
