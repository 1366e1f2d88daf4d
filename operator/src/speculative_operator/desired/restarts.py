"""What a restart does to a revision's pod template: its stamp, and a newer rendering.

A stamp stays as long as the Deployment: whatever status says about later
restarts, a template that loses it would replace every pod.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from speculative_api.labels import RESTARTED_AT
from speculative_operator.decision import Decision
from speculative_operator.desired.workers import Template, pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Snapshot, Words


def revision_bytes(record: RevisionRecord) -> int:
    """Size of what is stored of a revision."""
    data = {"spec": dict(record.words), "template": record.template}
    return len(orjson.dumps(data))


def record_in_force(
    revision: str,
    snapshot: Snapshot,
    decision: Decision,
    settings: Settings,
    *,
    at_most_bytes: int,
) -> RevisionRecord | None:
    """The stored record of a revision, in the rendering that a restart under way asks for.

    None where nothing is stored. It is the old rendering where today's says the
    same, or can't be stored, or was taken back.
    """
    restart, record = decision.status.restart, snapshot.revisions.get(revision)
    if record is None or restart is None or restart.hash != revision:
        return record
    if restart.outcome == "Reverted" and record.render == restart.render:
        older = [other for other in snapshot.older_renders if other.hash == revision]
        return max(older, key=lambda other: other.render, default=record)
    if restart.outcome is not None:
        return record
    if restart.render is None or record.render >= restart.render:
        return record
    words = Words(hash=record.hash, canonical=record.words)
    template = pod_template(words, name=snapshot.name, settings=settings)
    fresh = replace(record, template=template, render=restart.render)
    fits = revision_bytes(fresh) <= at_most_bytes
    return fresh if fits and template != record.template else record


def kept_renders(
    snapshot: Snapshot, decision: Decision, used: Iterable[RevisionRecord]
) -> list[RevisionRecord]:
    """Older renderings that stay until the restart which replaces them is over."""
    restart = decision.status.restart
    if restart is None or restart.outcome is not None:
        return []
    now = {(record.hash, record.render) for record in used}
    stored = (*snapshot.revisions.values(), *snapshot.older_renders)
    mine = (record for record in stored if record.hash == restart.hash)
    return [record for record in mine if (record.hash, record.render) not in now]


def stamped(
    template: Mapping[str, Any], revision: str, snapshot: Snapshot, decision: Decision
) -> Template:
    """The template with the stamp of the revision's last restart, if there was one."""
    at = _stamp(revision, snapshot, decision)
    if not at:
        return dict(template)
    metadata = template.get("metadata", {})
    annotations = {**metadata.get("annotations", {}), RESTARTED_AT: at}
    return {**template, "metadata": {**metadata, "annotations": annotations}}


def _stamp(revision: str, snapshot: Snapshot, decision: Decision) -> str:
    restart = decision.status.restart
    if restart is not None and restart.hash == revision:
        return restart.stamp_before or "" if restart.outcome == "Reverted" else restart.stamp
    view = snapshot.deployments.get(revision)
    return view.restarted_at if view is not None else ""
