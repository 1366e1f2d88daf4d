"""YAML and JSON documents out of files, with the line of every field. Reads files.

Comes in: names of files and folders, `-` for standard input. Goes out: each
document, alone or out of a list of whatever kind, with the marks of its nodes.
What no API server would take as it stands there is refused here: keys that
occur twice, and aliases that unfold to more than anybody wrote.
"""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

SUFFIXES: Final = (".yaml", ".yml", ".json")
"""Of files that are read in a folder."""
MOST_NODES: Final = 200_000
"""Nodes of a document with its aliases unfolded; etcd stores 1.5 MiB per object."""
_STEP: Final = re.compile(r"[^.\[\]]+")


class Unreadable(ValueError):
    """A file, or a part of it, that is no document: says why, and where if known."""

    def __init__(self, message: str, *, line: int = 1) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands; both count from 1."""

    line: int = 1
    column: int = 1


@dataclass(frozen=True, slots=True)
class Document:
    """A document, its number in the file counted from 1, and its node, where YAML gave one."""

    number: int
    body: Any
    node: Node | None

    def place(self, field: str) -> Place:
        """Where a field stands, or the nearest above it that is written down."""
        if self.node is None:
            return Place()
        found, node = self.node.start_mark, self.node
        for step in _STEP.findall(field):
            following = _below(node, step)
            if following is None:
                break
            found, node = following
        return Place(found.line + 1, found.column + 1)


def _below(node: Node, step: str) -> tuple[Any, Node] | None:
    """The mark and the node of one key or index."""
    if isinstance(node, SequenceNode) and step.isdigit() and int(step) < len(node.value):
        item = node.value[int(step)]
        return item.start_mark, item
    if isinstance(node, MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark, value
    return None


def files_of(names: Sequence[str]) -> Iterator[str]:
    """The files, those of folders included, in order."""
    for name in names:
        folder = Path(name)
        if name == "-" or not folder.is_dir():
            yield name
        else:
            found = (p for p in folder.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            yield from (str(path) for path in sorted(found))


def documents(file: str) -> Iterator[Document]:
    """The documents of one file; those in a list count one by one.

    Raises:
        Unreadable: the file, or from here on the rest of it.
    """
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise Unreadable(f"can't be read: {error}") from error
    number = 0
    for body, node in _parsed(text):
        for item, inner in _unlisted(body, node):
            number += 1
            yield Document(number, item, inner)


def _parsed(text: str) -> Iterator[tuple[Any, Node | None]]:
    try:
        loader = yaml.SafeLoader(text)
        while loader.check_node():
            node = loader.get_node()
            if node is None:
                break
            _refuse_what_nobody_means(node)
            yield loader.construct_document(node), node
    except yaml.YAMLError as error:
        as_json = _json(text)
        if as_json is None:
            mark = getattr(error, "problem_mark", None)
            line = mark.line + 1 if mark is not None else 1
            said = " ".join(str(error).split())
            raise Unreadable(f"can't be read: {said}", line=line) from error
        yield as_json, None
    except RecursionError as error:
        raise Unreadable("can't be read: nested too deeply") from error
    except ValueError as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"can't be read: {error}") from error


def _json(text: str) -> Any:
    """JSON that is no YAML, for instance with tabs; None if it is no JSON either."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _unlisted(body: Any, node: Node | None) -> Iterator[tuple[Any, Node | None]]:
    """The body, or the items of a List, a ResourceList or any other ...List, however deep."""
    items = body.get("items") if isinstance(body, dict) else None
    if not (isinstance(items, list) and str(body.get("kind", "")).endswith("List")):
        yield body, node
        return
    below = _below(node, "items") if node is not None else None
    nodes = below[1].value if below is not None and isinstance(below[1], SequenceNode) else []
    for index, item in enumerate(items):
        yield from _unlisted(item, nodes[index] if index < len(nodes) else None)


def _refuse_what_nobody_means(node: Node) -> None:
    """Raises Unreadable for a key that occurs twice, and for aliases without end."""
    sizes: dict[int, int] = {}

    def size(one: Node, above: frozenset[int]) -> int:
        if id(one) in above:
            raise Unreadable("contains itself by an alias", line=one.start_mark.line + 1)
        if id(one) not in sizes:
            inside = above | {id(one)}
            sizes[id(one)] = 1 + sum(size(part, inside) for part in _parts(one))
        if sizes[id(one)] > MOST_NODES:
            raise Unreadable(f"has more than {MOST_NODES} values with its aliases unfolded")
        return sizes[id(one)]

    size(node, frozenset())


def _parts(node: Node) -> Iterator[Node]:
    if isinstance(node, SequenceNode):
        yield from node.value
    elif isinstance(node, MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            written = str(key.value) if isinstance(key.value, str) else ""
            if written and written in seen and written != "<<":
                line = key.start_mark.line + 1
                raise Unreadable(f"says {written} twice, and only one would count", line=line)
            seen.add(written)
            yield value
