"""`status`: once, or again and again until interrupted. Reads and prints."""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

import yaml

from . import looking, screen, terminal, tree
from .errors import Unreachable
from .looking import View
from .resource import Resource

LOOK_EVERY_SECONDS: Final = 1.0
"""Time between two looks at the resource."""
PODS_EVERY_SECONDS: Final = 5.0
"""Time between two looks at its pods and evidence, which cost more."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What was asked for on the command line."""

    output: str = "text"
    watch: bool = False
    every_pod: bool = False


def status(read: Callable[[], Resource], reader: looking.Reader, wanted: Wanted) -> None:
    """Shows the resource; with `watch` it ends by an interrupt only.

    Raises:
        CliError: it can't be read; with `watch`, only at the first look.
    """
    shown, view, looked_at = "", None, 0.0
    rewrite = wanted.watch and wanted.output == "text" and sys.stdout.isatty()
    while True:
        try:
            resource = read()
        except Unreachable as error:
            if not wanted.watch or not shown:
                raise
            print(f"error: {terminal.printable(str(error))}; trying again", file=sys.stderr)
        else:
            # On a terminal ages move on; elsewhere one block for each change.
            mark = str(resource.raw_status) + str(resource.generation)
            if rewrite or mark != shown:
                if view is None or time.monotonic() - looked_at >= PODS_EVERY_SECONDS:
                    view = looking.look(reader, resource, every_pod=wanted.every_pod)
                    looked_at = time.monotonic()
                _print(resource, view, wanted, rewrite=rewrite)
            shown = mark
        if not wanted.watch:
            return
        time.sleep(LOOK_EVERY_SECONDS)


def _print(resource: Resource, view: View, wanted: Wanted, *, rewrite: bool) -> None:
    now = datetime.now(UTC)
    match wanted.output:
        case "json":
            indent = None if wanted.watch else 2
            print(json.dumps(_document(resource, view, now), indent=indent), flush=True)
        case "yaml":
            separator = "---\n" if wanted.watch else ""
            body = yaml.safe_dump(_document(resource, view, now), sort_keys=False)
            print(separator + body, end="", flush=True)
        case _:
            style = terminal.here()
            text = tree.text(resource, view, now, style, every_pod=wanted.every_pod)
            if rewrite:
                terminal.redraw(text)
            else:
                terminal.show(text + (f"\n--- {now:%H:%M:%S} UTC" if wanted.watch else ""))


def _document(resource: Resource, view: View, now: datetime) -> dict[str, object]:
    trial = view.trial
    return screen.document(resource, now) | {
        "pods": tree.pods_document(view.pods),
        "evidence": trial.model_dump(mode="json", by_alias=True) if trial else None,
        "notes": list(view.notes),
    }
