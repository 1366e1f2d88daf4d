"""PURE: which number each token has, from whichever file a tokenizer comes in.

Comes in: `ModelFiles`. Goes out: the file that was read, and token to number.
Called by `model_facts`. Sources: huggingface/tokenizers (tokenizer.json),
google/sentencepiece (sentencepiece_model.proto), mistral-common (tekken.json).
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from speculative_api.weight_files import ModelFiles, Unreadable, json_of

TOKENIZERS: Final = ("tokenizer.json", "tokenizer.model", "vocab.json", "tekken.json")
PIECES: Final = "tokenizer.model"
_ADDED: Final = "added_tokens.json"
_PIECES_BYTES: Final = 32 * 2**20
_PIECE_FIELD: Final = 1
"""Of ModelProto: one SentencePiece; of that, its text."""


def numbers_of(files: ModelFiles) -> tuple[str | None, dict[str, int] | None]:
    """The file that says it, and token to number with added tokens; None where none does.

    Raises `Unreadable` for a file of a known name that is not what it should be.
    """
    sizes = files.sizes()
    if "tokenizer.json" in sizes:
        found = _of_library(_object(files, "tokenizer.json"))
        return ("tokenizer.json", found) if found is not None else (None, None)
    added = _numbers(_object(files, _ADDED), _ADDED) if _ADDED in sizes else {}
    if "vocab.json" in sizes:
        return "vocab.json", _numbers(_object(files, "vocab.json"), "vocab.json") | added
    if "tekken.json" in sizes:
        return "tekken.json", _of_tekken(_object(files, "tekken.json"))
    if PIECES in sizes:
        pieces = dict(_pieces(files.head(PIECES, _PIECES_BYTES)))
        return (PIECES, pieces | added) if pieces else (None, None)
    return None, None


def _of_library(content: Mapping[str, Any]) -> dict[str, int] | None:
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, list):
        # Unigram models list [token, score] pairs in the order of their ids.
        if not all(isinstance(pair, list) and pair for pair in vocabulary):
            raise Unreadable("tokenizer.json has a vocab that is no list of pairs")
        tokens = {str(pair[0]): index for index, pair in enumerate(vocabulary)}
    elif isinstance(vocabulary, dict):
        tokens = _numbers(vocabulary, "tokenizer.json")
    else:
        return None
    for added in content.get("added_tokens") or ():
        if not isinstance(added, dict) or not isinstance(added.get("content"), str):
            raise Unreadable("tokenizer.json has an added token without content")
        tokens |= _numbers({added["content"]: added.get("id")}, "tokenizer.json")
    return tokens


def _of_tekken(content: Mapping[str, Any]) -> dict[str, int]:
    listed = content.get("vocab")
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise Unreadable("tekken.json has no list vocab")
    return _numbers(
        {str(entry.get("token_bytes")): entry.get("rank") for entry in listed}, "tekken.json"
    )


def _numbers(found: Mapping[str, Any], name: str) -> dict[str, int]:
    for token, number in found.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise Unreadable(f"{name} gives token {token[:64]!r} the number {str(number)[:64]}")
    return dict(found)


def _pieces(data: bytes) -> Iterator[tuple[str, int]]:
    """Pieces of a sentencepiece model in the order of their numbers; ends where it is damaged."""
    number = 0
    for field, content in _fields(data):
        if field == _PIECE_FIELD:
            text = next((each for at, each in _fields(content) if at == _PIECE_FIELD), b"")
            yield text.decode(errors="replace"), number
            number += 1


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields of a protobuf message that have a length; others are passed over."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 2:
            length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length
        elif kind == 0:
            _, at = _varint(data, at)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            return


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return number, at


def _object(files: ModelFiles, name: str) -> dict[str, Any]:
    content = json_of(files.text(name), name)
    if not isinstance(content, dict):
        raise Unreadable(f"{name} is not a JSON object")
    return content
