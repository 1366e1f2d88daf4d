"""Stored revisions: their table, their differences, and the way back to one. Pure.

Made from raw ControllerRevisions. The native lane's are left out: nobody wrote
them, and they come and go with stable's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from speculative_api.labels import CHANGE_CAUSE, RENDER, REVISION
from speculative_api.revisions import is_native
from speculative_api.v1alpha1 import REVISIONED_FIELDS

from .errors import Refused
from .resource import Resource
from .screen import age, table

SPEC: Final = "spec"
"""Stands for what the resource asks for now, wherever a revision may be named."""
_FIELDS: Final = tuple(
    first + "".join(part.title() for part in rest)
    for first, *rest in (field.split("_") for field in REVISIONED_FIELDS)
)


@dataclass(frozen=True, slots=True)
class Record:
    """One stored revision."""

    number: int
    hash: str
    words: Mapping[str, Any]
    created_at: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Return:
    """A patch of the resource that makes it ask for a stored revision again."""

    patch: Mapping[str, Any]
    sentence: str


def records(raw: Sequence[Mapping[str, Any]], resource: Resource) -> list[Record]:
    """The resource's revisions by number; those of a namesake before it are left out."""
    found: dict[str, Record] = {}
    for thing in sorted(raw, key=_render):
        metadata, data = thing["metadata"], thing.get("data") or {}
        owners = {owner.get("uid") for owner in metadata.get("ownerReferences") or []}
        hash_ = (metadata.get("labels") or {}).get(REVISION, "")
        if resource.uid not in owners or "spec" not in data or is_native(hash_, data["spec"]):
            continue
        first = found.get(hash_)
        found[hash_] = Record(
            number=int(thing.get("revision", 0)),
            hash=hash_,
            words=data["spec"],
            # A later rendering of the same words is not a later revision.
            created_at=first.created_at if first else metadata.get("creationTimestamp") or "",
            cause=(metadata.get("annotations") or {}).get(CHANGE_CAUSE, ""),
        )
    return sorted(found.values(), key=lambda record: (record.number, record.hash))


def _render(thing: Mapping[str, Any]) -> int:
    said = str((thing["metadata"].get("annotations") or {}).get(RENDER, "0"))
    return int(said) if said.isascii() and said.isdigit() else 0


def named(name: str, known: Sequence[Record], resource: Resource) -> Record:
    """The revision of a number, of the beginning of a hash, or `spec`.

    Raises:
        Refused: none or several are called so.
    """
    if name == SPEC:
        return Record(0, resource.spec_hash or "", resource.words or {})
    by_number = [record for record in known if str(record.number) == name]
    found = by_number or [record for record in known if record.hash.startswith(name)]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{record.number} ({record.hash})" for record in known) or "none"
    problem = "several revisions begin with" if found else "no stored revision is called"
    raise Refused(f"{problem} {name!r}; stored are: {listed}")


def state(record: Record, resource: Resource) -> str:
    """What the operator thinks of a revision, in a word or two."""
    status = resource.status
    parts = {"stable": status.stable, "canary": status.canary, "guard": status.guard}
    found = [name for name, part in parts.items() if part and part.hash == record.hash]
    found += [f"failed {e.reason}" for e in status.failed_revisions if e.hash == record.hash]
    if record.hash == resource.spec_hash and "stable" not in found:
        found.append("asked for")
    return ", ".join(found) or "-"


def text(known: Sequence[Record], resource: Resource, now: datetime) -> str:
    """All revisions, the newest last, as kubectl's history."""
    if not known:
        return f"{resource.namespace}/{resource.name} has no stored revision yet"
    rows: list[tuple[str, ...]] = [("REVISION", "HASH", "AGE", "STATE", "CAUSE")]
    for record in known:
        old = age(record.created_at, now) if record.created_at else "-"
        cause = record.cause.partition("\n")[0] or "-"
        rows.append((str(record.number), record.hash, old, state(record, resource), cause))
    return "\n".join(table(rows))


def document(record: Record, resource: Resource) -> dict[str, Any]:
    """One revision for programs."""
    return {
        "revision": record.number,
        "hash": record.hash,
        "createdAt": record.created_at,
        "cause": record.cause,
        "state": state(record, resource),
        "words": dict(record.words),
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Field by field, `path: old -> new`; what is at its default has no words."""
    return list(_differences(old, new, ""))


def _differences(old: Any, new: Any, path: str) -> Iterator[str]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            yield from _differences(old.get(key), new.get(key), inner)
    elif isinstance(old, Mapping) or isinstance(new, Mapping):
        given: Any = old if isinstance(old, Mapping) else new
        if not given:
            yield f"{path}: {_shown(old)} -> {_shown(new)}"
        for key in sorted(given):
            one: Any = old.get(key) if isinstance(old, Mapping) else None
            other: Any = new.get(key) if isinstance(new, Mapping) else None
            yield from _differences(one, other, f"{path}.{key}")
    elif old != new:
        yield f"{path}: {_shown(old)} -> {_shown(new)}"


def _shown(value: Any) -> str:
    return "(default)" if value is None else repr(value) if isinstance(value, str) else str(value)


def undo(resource: Resource, known: Sequence[Record], *, to: str | None) -> Return | str:
    """The way back to a revision, or why it is gone already; without a name, to the one before.

    That is stable, if the spec asks for something else; else the one kept under
    guard; else the newest before it that did not fail.

    Raises:
        Refused: there is none, or it failed.
    """
    where = f"{resource.namespace}/{resource.name}"
    if to is None and (leaving := _undone(resource)):
        return (
            f"{where} asks for {resource.spec_hash} again, and {leaving} is on its way out; "
            "to go back further, name a revision with --to"
        )
    record = named(to, known, resource) if to else _before(resource, known)
    if record.hash == resource.spec_hash:
        return f"{where} asks for revision {record.number} ({record.hash}) already"
    failed = next((e for e in resource.status.failed_revisions if e.hash == record.hash), None)
    if failed is not None:
        raise Refused(
            f"revision {record.number} ({record.hash}) failed at {failed.at} and would not be "
            f"tried: {failed.reason}: {failed.message}\nif you want it all the same: kubectl "
            f"speculative retry {resource.name} -n {resource.namespace} --hash {record.hash}, "
            "then undo again"
        )
    spec = merge_patch(
        {key: resource.raw_spec[key] for key in _FIELDS if key in resource.raw_spec}, record.words
    )
    metadata: dict[str, Any] = {"annotations": {CHANGE_CAUSE: record.cause or None}}
    if resource.resource_version:
        metadata["resourceVersion"] = resource.resource_version
    return Return(
        patch={"metadata": metadata, "spec": spec},
        sentence=f"{where} goes back to revision {record.number} ({record.hash})",
    )


def _undone(resource: Resource) -> str:
    """Hash of what the spec asked for a moment ago; a second `undo` is not meant for one before."""
    status = resource.status
    if status.stable is None or status.stable.hash != resource.spec_hash:
        guarded = status.guard is not None and status.guard.hash == resource.spec_hash
        return status.stable.hash if status.stable is not None and guarded else ""
    if status.canary is not None:
        return status.canary.hash
    told = status.verdict
    leaving = {entry.hash for entry in status.retiring}
    superseded = told is not None and told.outcome == "Superseded" and told.hash in leaving
    return told.hash if told is not None and superseded else ""


def _before(resource: Resource, known: Sequence[Record]) -> Record:
    status, current = resource.status, resource.spec_hash
    failed = {entry.hash for entry in status.failed_revisions}
    if status.stable is not None and status.stable.hash != current:
        wanted = [record for record in known if record.hash == status.stable.hash]
    elif status.guard is not None:
        wanted = [record for record in known if record.hash == status.guard.hash]
    else:
        number = next((r.number for r in known if r.hash == current), float("inf"))
        wanted = [r for r in known if r.number < number and r.hash not in failed]
    if not wanted:
        raise Refused(
            f"{resource.namespace}/{resource.name}: no earlier revision is stored that did not "
            "fail; see kubectl speculative history"
        )
    return wanted[-1]


def merge_patch(live: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """What turns `live` into `wanted` (JSON merge patch, RFC 7386); lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in live if key not in wanted}
    for key, value in wanted.items():
        before = live.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif before != value:
            patch[key] = value
    return patch
