"""Evidence about stable's own past, kept in memory and in ConfigMap `<name>-drift`.

Written every few blocks: what a restart of the operator costs is at most that
much evidence, of something that takes hours. The baseline itself, once it is
complete, stands in status. The open block is not kept: it begins anew.
"""

import json
import logging
from typing import Final

from speculative_operator.analysis.drift import DriftEvidence, begin, observe
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import CONFIG_MAP, JSON, Key, controller_uid
from speculative_operator.decision import DriftQuestion
from speculative_operator.desired import names
from speculative_operator.snapshot import Snapshot

log = logging.getLogger(__name__)

KEY: Final = "drift.json"
BLOCKS_BETWEEN_WRITES: Final = 4
LARGEST: Final = 64 * 1024
"""Characters that are read at most; ours has about 2,000."""


def look(
    known: DriftEvidence | None,
    question: DriftQuestion,
    snapshot: Snapshot,
    store: Store,
    *,
    period_seconds: float,
) -> DriftEvidence:
    """The evidence after one more look, begun or read from the cluster where it is not known."""
    evidence = known
    if evidence is None or evidence.question != question:
        evidence = _stored(question, snapshot, store) or begin(question)
    at = snapshot.now.timestamp()
    return observe(evidence, snapshot.pods, at=at, period_seconds=period_seconds)


def _stored(question: DriftQuestion, snapshot: Snapshot, store: Store) -> DriftEvidence | None:
    key: Key = (snapshot.namespace, snapshot.name)
    thing = store.of(key).get(names.drift(snapshot.name))
    if thing is None or controller_uid(thing) != snapshot.uid:
        return None
    try:
        text = thing["data"][KEY]
        if len(text) > LARGEST:
            raise ValueError("too large")
        return DriftEvidence.from_json(json.loads(text), question)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        # Of another question, or edited by hand: judged anew.
        log.info("event=drift-begins-anew object=%s/%s why=%r", *key, str(error))
        return None


def is_due(evidence: DriftEvidence, written: tuple[str, int]) -> bool:
    """Whether it is to be written; `written` is the identity and blocks of the last time."""
    identity, blocks = written
    if evidence.blocks == 0:
        return False
    if evidence.question.identity != identity:
        return True
    return abs(evidence.blocks - blocks) >= BLOCKS_BETWEEN_WRITES


def config_map(snapshot: Snapshot, evidence: DriftEvidence) -> JSON:
    """The ConfigMap that keeps it."""
    text = json.dumps(evidence.to_json(), separators=(",", ":"), sort_keys=True)
    return {
        "apiVersion": CONFIG_MAP.api_version,
        "kind": CONFIG_MAP.kind,
        "metadata": {
            "name": names.drift(snapshot.name),
            "namespace": snapshot.namespace,
            "labels": names.common_labels(snapshot.name),
            "ownerReferences": [names.owner_reference(snapshot.name, snapshot.uid)],
        },
        "data": {KEY: text},
    }
