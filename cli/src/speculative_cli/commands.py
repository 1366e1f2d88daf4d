"""The verbs beyond status and requests: list, history, diff, undo. Each prints and ends."""

import json
import sys
from datetime import UTC, datetime

import yaml

from speculative_api.labels import EVIDENCE_SUFFIX

from . import evidence, revisions, screen, terminal
from .cluster import Cluster
from .errors import CliError, NotFound
from .resource import Resource, parse


def show_all(cluster: Cluster, *, everywhere: bool, output: str) -> None:
    """One line for each resource, or their status documents."""
    now = datetime.now(UTC)
    found = []
    for raw in cluster.read_all(everywhere=everywhere):
        try:
            found.append(parse(raw))
        except CliError as error:
            # One that can't be read hides no other.
            print(terminal.printable(f"error: {error}"), file=sys.stderr)
    if output == "json":
        print(json.dumps([screen.document(resource, now) for resource in found], indent=2))
    elif found:
        terminal.say(screen.overview(found, with_namespace=everywhere))
    else:
        where = "any namespace" if everywhere else f"namespace {cluster.namespace}"
        print(f"no SpeculativeDeployment in {where}", file=sys.stderr)


def show_history(
    cluster: Cluster, resource: Resource, *, revision: str | None, output: str
) -> None:
    """All stored revisions, or the words of one."""
    known = revisions.records(cluster.revisions(resource.name), resource)
    chosen = [revisions.named(revision, known, resource)] if revision else known
    if output == "json":
        documents = [revisions.document(record, resource) for record in chosen]
        print(json.dumps(documents[0] if revision else documents, indent=2))
        return
    if not revision:
        terminal.say(revisions.text(known, resource, datetime.now(UTC)))
        return
    (record,) = chosen
    terminal.say(f"# revision {record.number} ({record.hash}): {revisions.state(record, resource)}")
    if record.cause:
        terminal.say("\n".join(f"# {line}" for line in record.cause.splitlines()))
    print(yaml.safe_dump(dict(record.words), sort_keys=False), end="")


def show_difference(cluster: Cluster, resource: Resource, *, old: str, new: str) -> None:
    """What differs between two revisions, field by field."""
    known = revisions.records(cluster.revisions(resource.name), resource)
    before, after = (revisions.named(name, known, resource) for name in (old, new))
    lines = revisions.differences(before.words, after.words)
    terminal.say("\n".join(lines) if lines else f"{old} and {new} say the same")


def explain(cluster: Cluster, resource: Resource, *, output: str, plot_file: str | None) -> None:
    """The evidence of the last trial: a table, or JSON; and a picture if a file is named."""
    raw = cluster.config_map(f"{resource.name}{EVIDENCE_SUFFIX}")
    found = evidence.trial(raw, resource)
    course = evidence.course(raw, found)
    shadow = evidence.shadow(raw, found)
    if output == "json":
        document = found.model_dump(mode="json", by_alias=True)
        document["course"] = course and course.model_dump(mode="json", by_alias=True)
        document["shadow"] = shadow and shadow.model_dump(mode="json", by_alias=True)
        print(json.dumps(document, indent=2))
    else:
        parts = [evidence.text(found, resource, datetime.now(UTC))]
        parts += [evidence.course_text(course)] if course else []
        parts += [evidence.shadow_text(shadow, datetime.now(UTC))] if shadow else []
        terminal.say("\n\n".join(parts))
    if plot_file is not None:
        from .plot import draw

        if course is None:
            raise NotFound(f"{resource.name}: this operator kept no course of the trial to plot")
        draw(found, course, resource, plot_file, shadow=shadow)
        print(f"written: {plot_file}", file=sys.stderr)


def go_back(cluster: Cluster, resource: Resource, *, to: str | None) -> None:
    """Makes the spec ask for a stored revision again."""
    known = revisions.records(cluster.revisions(resource.name), resource)
    found = revisions.undo(resource, known, to=to)
    if isinstance(found, str):
        terminal.say(f"nothing to do: {found}")
        return
    cluster.patch(resource.name, found.patch)
    terminal.say(f"asked: {found.sentence}")
