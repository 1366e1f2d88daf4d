"""What goes over the line to the API server: errors, events, patches, selectors."""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from speculative_operator.cluster.resources import JSON
from speculative_operator.errors import (
    ApiError,
    Conflict,
    Gone,
    NotFound,
    NotReadable,
    Refused,
    Unavailable,
)

_ERRORS: Final[Mapping[int, type[ApiError]]] = {
    400: Refused,
    403: Refused,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Refused,
}
_NOT_APPLICABLE: Final = ("failed to create typed patch object", "failed to convert new object")
"""What server-side apply says, with 500, about an unknown field or a value of the wrong type."""


def error_of(status: int, message: str) -> ApiError:
    """The error for an HTTP status."""
    found: type[ApiError] = _ERRORS.get(status, ApiError)
    if status == 500 and any(sign in message for sign in _NOT_APPLICABLE):
        found = Refused
    elif status in (0, 429) or status >= 500:
        found = Unavailable
    return found(message, status)


def replacing(old: JSON, new: JSON) -> JSON:
    """A merge patch that turns `old` into `new`: keys that went become null, at every depth."""
    patch: JSON = {}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            patch[key] = replacing(before, value) | {k: None for k in before if k not in value}
        else:
            patch[key] = value
    return patch


def selecting(labels: str, fields: str) -> dict[str, str]:
    """The part of a query that says which objects are meant; both may be empty."""
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return {name: selector for name, selector in selectors.items() if selector}


def decoded(text: bytes, status: int, request: str) -> JSON:
    """The object in an answer; of one that is an error, empty for whatever else it is.

    Raises:
        NotReadable: it is said to be good and is no object: a proxy's page, or cut off. Taken
            for an empty one, everything that was asked for would be gone.
    """
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if status < 400:
        # Not its words: they may be half of a Secret.
        raise NotReadable(f"{request}: {status}, but {len(text)} bytes that are no object")
    return {}


def page_of(answer: JSON, path: str) -> tuple[list[JSON], str, str]:
    """Objects of one page of a list, its version, and where the next one goes on, if anywhere.

    Raises:
        NotReadable: it is no list.
    """
    said, items = answer.get("metadata"), answer.get("items")
    metadata = said if isinstance(said, dict) else {}
    version = metadata.get("resourceVersion")
    if not (isinstance(version, str) and version and isinstance(items, list | None)):
        raise NotReadable(f"list {path}: an object that is no list")
    return items or [], version, str(metadata.get("continue") or "")


def event_of(line: bytes, path: str) -> tuple[str, JSON]:
    """(type, object) of a line of a watch of `path`.

    Raises:
        NotReadable: it is no event.
        ApiError: the server ends the watch with an error, Gone for instance.
    """
    try:
        event: dict[str, Any] = orjson.loads(line)
        kind, thing = event["type"], dict(event["object"])
        if kind != "ERROR":
            dict(thing["metadata"])
            return kind, thing
        code = int(thing.get("code", 0))
    except (ValueError, KeyError, TypeError) as error:
        raise NotReadable(f"watch {path}: {len(line)} bytes are not an event") from error
    raise error_of(code, f"watch {path}: {code} {thing.get('message', '')}")
