"""PURE: are a checkpoint's weight files whole, and which tensors do they hold?

Comes in: `ModelFiles`. Goes out: `Weights` for `model_facts`. Of a
safetensors file only the header is read: eight bytes of length, then JSON with
a shape and a place for each tensor. What a header says of itself is not
believed: neither its length, nor its places, nor names of other files.
Source: huggingface/safetensors, format description in its README.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

HEADER_BYTES: Final = 64 * 2**20
"""Longest safetensors header that is believed; a large model's has a few hundred kilobytes."""
_ENDINGS: Final = (".safetensors", ".bin", ".pt", ".gguf")
_INDEXES: Final = {
    ".safetensors": "model.safetensors.index.json",
    ".bin": "pytorch_model.bin.index.json",
}
_WHOLE: Final = "model.safetensors"
_POINTER: Final = b"version "
"""A Git LFS pointer begins so; as a length it would be two million terabytes."""
_LENGTH: Final = struct.Struct("<Q")
_NAME_CHARACTERS: Final = 120


class Unreadable(ValueError):
    """A file of the checkpoint is missing or not what it should be; the message names it."""


class ModelFiles(Protocol):
    """The files of one checkpoint, wherever they are."""

    def sizes(self) -> Mapping[str, int]:
        """Bytes of every file, by its path in the checkpoint; 0 where nobody says."""

    def text(self, name: str) -> str:
        """A small file as text. Raises `Unreadable`."""

    def head(self, name: str, size: int) -> bytes:
        """The first bytes of a file; fewer where it is shorter. Raises `Unreadable`."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the weight files that the engine would load say of themselves."""

    tensors: frozenset[str] | None
    """Names of all tensors; None where no safetensors file or index says them."""
    shapes: Mapping[str, tuple[int, ...]]
    """Of the tensors whose header could be read."""
    total_bytes: int | None
    """Of all files that are loaded; None where there are none."""
    missing: str | None
    """A sentence, where an index names files that are not there."""
    damaged: tuple[str, ...]
    """A sentence for each file that no engine can load."""


def weights_of(files: ModelFiles) -> Weights:
    """Reads indexes and headers. Raises `Unreadable` for an index that is no JSON object."""
    sizes = files.sizes()
    kind = next((each for each in _ENDINGS if any(name.endswith(each) for name in sizes)), None)
    here = {name: size for name, size in sizes.items() if kind and name.endswith(kind)}
    index = _INDEXES.get(kind or "")
    placed = _placed(files, index) if index in sizes else {}
    shards = set(placed.values())
    absent = sorted(shards - here.keys())
    loaded = _loaded(here, shards)
    shapes: dict[str, tuple[int, ...]] = {}
    damaged = []
    for name in sorted(loaded) if kind == ".safetensors" else ():
        try:
            shapes |= _shapes(files, name, sizes[name])
        except Unreadable as error:
            damaged.append(f"{name}: {error}")
    return Weights(
        tensors=frozenset(placed) or (frozenset(shapes) or None if not damaged else None),
        shapes=shapes,
        total_bytes=sum(loaded.values()) if loaded else None,
        missing=_absent(index or "", absent) if absent else None,
        damaged=tuple(damaged),
    )


def header(head: bytes) -> dict[str, Any]:
    """The header of a safetensors file, without its free-form metadata.

    Raises `Unreadable`: not such a file, or cut before its header ends.
    """
    length = header_length(head)
    if len(head) < _LENGTH.size + length:
        raise Unreadable(f"its safetensors header of {length} bytes is not all there")
    content = json_of(head[_LENGTH.size : _LENGTH.size + length], "its safetensors header")
    if not isinstance(content, dict):
        raise Unreadable("its safetensors header is not a JSON object")
    return {name: value for name, value in content.items() if name != "__metadata__"}


def header_length(head: bytes) -> int:
    """What the first eight bytes say. Raises `Unreadable` for what can't be one."""
    if len(head) < _LENGTH.size:
        raise Unreadable(
            "it is too short for a safetensors file" if head else "it is empty; fetch it anew"
        )
    if head.startswith(_POINTER):
        raise Unreadable("it is a Git LFS pointer, not the weights; fetch them (git lfs pull)")
    (length,) = _LENGTH.unpack(head[: _LENGTH.size])
    if length > HEADER_BYTES:
        raise Unreadable(
            f"its safetensors header would have {length} bytes, more than {HEADER_BYTES}: it is "
            "damaged, or no such file"
        )
    return int(length)


def json_of(text: str | bytes, name: str) -> Any:
    """JSON of somebody else. Raises `Unreadable`, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise Unreadable(f"{name} cannot be read: it is nested too deeply") from None
    except ValueError as error:
        raise Unreadable(f"{name} cannot be read: {error}") from error


def _placed(files: ModelFiles, index: str | None) -> dict[str, str]:
    """Tensor to file."""
    content = json_of(files.text(index or ""), index or "")
    named = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(named, dict) or not named:
        raise Unreadable(f"{index} has no weight_map, so nobody knows which files to load")
    return {tensor: str(file) for tensor, file in named.items()}


def _loaded(here: Mapping[str, int], shards: set[str]) -> dict[str, int]:
    """The files that the engine loads, though the same weights may be there twice."""
    if shards:
        return {name: size for name, size in here.items() if name in shards}
    if _WHOLE in here:
        return {_WHOLE: here[_WHOLE]}
    return dict(here)


def _absent(index: str, absent: list[str]) -> str:
    return (
        f"{index} names {len(absent)} files that are not there, the first is "
        f"{absent[0][:_NAME_CHARACTERS]!r}; fetch the model anew, or all of it"
    )


def _shapes(files: ModelFiles, name: str, size: int) -> dict[str, tuple[int, ...]]:
    length = header_length(files.head(name, _LENGTH.size))
    begin = _LENGTH.size + length
    if size and begin > size:
        raise Unreadable(f"it is cut short: its header alone has {begin} bytes, the file {size}")
    content = header(files.head(name, begin))
    end = begin + max(_ends(content), default=0)
    if size and end > size:
        raise Unreadable(f"it is cut short: its tensors take {end} bytes, the file has {size}")
    return {tensor: tuple(shape) for tensor, shape in _shaped(content)}


def _ends(content: Mapping[str, Any]) -> Iterator[int]:
    for entry in content.values():
        places = entry.get("data_offsets") if isinstance(entry, dict) else None
        if isinstance(places, list) and len(places) == 2 and isinstance(places[1], int):
            yield places[1]


def _shaped(content: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    for tensor, entry in content.items():
        shape = entry.get("shape") if isinstance(entry, dict) else None
        whole = isinstance(shape, list) and all(isinstance(number, int) for number in shape)
        yield tensor, shape if whole and shape is not None else []
