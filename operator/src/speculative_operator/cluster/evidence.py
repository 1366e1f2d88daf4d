"""The evidence of a trial, kept in memory and in ConfigMap `<name>-evidence`.

Written at most once per `evidence_write_seconds` and when a transition is made;
an operator that starts anew goes on from what was written. Pods count from their
start, so that what happened since the last write is in the next look: what is
lost is where its blocks would have ended. Another trial (a canary's shadow, its
weights, the guard after it) has another identity, and begins anew.
"""

import base64
import json
import logging
import zlib
from dataclasses import asdict
from typing import Final

from pydantic import ValidationError

from speculative_api.assessment import (
    ASSESSMENT_KEY,
    COURSE_KEY,
    SHADOW_KEY,
    SHOWN_AT_MOST,
    CoursePoint,
    JudgedCourse,
    JudgedMetric,
    JudgedShadow,
    JudgedTrial,
)
from speculative_api.labels import MANAGED_BY, MANAGER, NAME
from speculative_api.v1alpha1 import Analysis
from speculative_operator.analysis.verdict import (
    Evidence,
    Sample,
    assess,
    begin,
    continues,
    observe,
)
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONFIG_MAP, JSON, Key
from speculative_operator.desired import names
from speculative_operator.snapshot import Snapshot

log = logging.getLogger(__name__)

EVIDENCE_KEY: Final = "evidence.json.gz"
"""Compressed: with many pods it is mostly their names."""
_GZIP: Final = 31
"""Bits of the window, in gzip's own frame (zlib's manual, inflateInit2)."""
LARGEST: Final = 4 * 1024 * 1024
"""Bytes that are unpacked at most: whoever may write ConfigMaps may have written this one."""


def look(
    known: Evidence | None,
    sample: Sample,
    *,
    trial: str,
    analysis: Analysis,
    trials: int,
    store: Store,
    key: Key,
) -> Evidence:
    """The evidence after one more look, begun or read from the cluster where it is not known."""
    evidence = known
    if evidence is None or not continues(evidence, trial, analysis, trials=trials):
        evidence = _stored(store, key)
    if evidence is None or not continues(evidence, trial, analysis, trials=trials):
        evidence = begin(trial, analysis, at=sample.at, trials=trials)
    return observe(evidence, sample)


def _stored(store: Store, key: Key) -> Evidence | None:
    thing = store.of(key).get(names.evidence(key[1]))
    if thing is None:
        return None
    try:
        return Evidence.from_json(json.loads(unpacked(thing["binaryData"][EVIDENCE_KEY])))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Judging anew costs time; judging by a misread number could cost users.
        log.warning("event=evidence-unreadable object=%s/%s why=%r", *key, str(error))
        return None


def config_map(snapshot: Snapshot, evidence: Evidence, before: JSON | None = None) -> JSON:
    """The ConfigMap that keeps it; `before` is the one that is replaced."""
    text = json.dumps(evidence.to_json(), separators=(",", ":"), sort_keys=True)
    judged = _judged(snapshot, evidence)
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": names.evidence(snapshot.name),
            "namespace": snapshot.namespace,
            "labels": {MANAGED_BY: MANAGER, NAME: snapshot.name},
            "ownerReferences": [names.owner_reference(snapshot.name, snapshot.uid)],
        },
        "binaryData": {EVIDENCE_KEY: packed(text)},
        "data": {
            ASSESSMENT_KEY: judged.model_dump_json(by_alias=True),
            COURSE_KEY: _course(judged, before).model_dump_json(by_alias=True),
            **_shadow(judged, before),
        },
    }


def packed(text: str) -> str:
    """As `binaryData` holds it; the same text gives the same."""
    maker = zlib.compressobj(wbits=_GZIP)
    return base64.b64encode(maker.compress(text.encode()) + maker.flush()).decode()


def unpacked(data: str) -> str:
    """The inverse. Raises ValueError on other data, and on more than `LARGEST` bytes."""
    reader = zlib.decompressobj(wbits=_GZIP)
    try:
        found = reader.decompress(base64.b64decode(data, validate=True), LARGEST)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not reader.eof:
        raise ValueError("cut, or too large")
    return found.decode()


def _judged(snapshot: Snapshot, evidence: Evidence) -> JudgedTrial:
    """The same for people: what each metric says, and how far it is from what it needs."""
    assessment = assess(evidence)
    candidate, _, rest = evidence.trial.partition("/")
    return JudgedTrial(
        candidate=candidate,
        stage=rest.partition("/")[0],
        began_at=evidence.began_at,
        at=snapshot.now.timestamp(),
        candidate_requests=assessment.candidate_requests,
        percent=evidence.weight,
        metrics=tuple(JudgedMetric.model_validate(asdict(metric)) for metric in assessment.metrics),
    )


def _course(judged: JudgedTrial, before: JSON | None) -> JudgedCourse:
    """What was written of this trial so far, and this look."""
    course = JudgedCourse(
        candidate=judged.candidate,
        stage=judged.stage,
        began_at=judged.began_at,
        metrics=tuple(metric.name for metric in judged.metrics),
        points=(),
    )
    try:
        known = JudgedCourse.model_validate_json((before or {}).get("data", {})[COURSE_KEY])
        if known.model_copy(update={"points": ()}) == course:
            course = known
    except (ValidationError, KeyError, TypeError, AttributeError):
        # Only a picture: it begins anew where there is none, or none that can be read.
        pass
    return course.followed_by(
        CoursePoint(
            at=judged.at,
            candidate_requests=judged.candidate_requests,
            percent=judged.percent,
            worse=tuple(_rounded(metric.worse) for metric in judged.metrics),
            not_worse=tuple(_rounded(metric.not_worse) for metric in judged.metrics),
        )
    )


def _shadow(judged: JudgedTrial, before: JSON | None) -> dict[str, str]:
    """What this candidate's shadow step came to, for as long as its users are judged."""
    data = (before or {}).get("data") or {}
    try:
        if SHADOW_KEY in data:
            known = JudgedShadow.model_validate_json(data[SHADOW_KEY])
        else:
            known = JudgedShadow(
                trial=JudgedTrial.model_validate_json(data[ASSESSMENT_KEY]),
                course=JudgedCourse.model_validate_json(data[COURSE_KEY]),
            )
    except (ValidationError, KeyError, TypeError):
        return {}
    mine = known.trial.candidate == judged.candidate and known.trial.stage == "shadow"
    if not mine or judged.stage == "shadow":
        return {}
    return {SHADOW_KEY: known.model_dump_json(by_alias=True)}


def _rounded(evidence: float) -> float:
    """Three leading digits, and no more than is ever shown."""
    return float(f"{min(evidence, SHOWN_AT_MOST):.3g}")
