"""Answers become errors of our own tree; requests end in time; merge patches replace."""

import json
from typing import Any

import pytest
from tests.cluster.fake_api import a_client, a_fake_api

from speculative_operator.cluster.resources import CONFIG_MAP, DEPLOYMENT, SPECULATIVE_DEPLOYMENT
from speculative_operator.cluster.wire import error_of, event_of, replacing
from speculative_operator.errors import (
    ApiError,
    Conflict,
    Gone,
    NotFound,
    NotReadable,
    Refused,
    Unavailable,
)


@pytest.mark.parametrize(
    "status,expected",
    [
        (400, Refused),
        (403, Refused),
        (404, NotFound),
        (409, Conflict),
        (410, Gone),
        (418, ApiError),
        (422, Refused),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
        (0, Unavailable),
    ],
)
def test_status_has_its_error(status: int, expected: type[ApiError]) -> None:
    found = error_of(status, "why")
    assert type(found) is expected
    assert found.status == status


def test_apply_of_an_unknown_field_is_refused_whatever_the_status() -> None:
    found = error_of(500, "failed to create typed patch object (x): .spec.foo: not declared")
    assert type(found) is Refused


@pytest.mark.parametrize(
    "path,expected",
    [
        (CONFIG_MAP.path(), "/api/v1/configmaps"),
        (DEPLOYMENT.path("llm"), "/apis/apps/v1/namespaces/llm/deployments"),
        (
            SPECULATIVE_DEPLOYMENT.path("llm", "chat", "status"),
            "/apis/speculative.dev/v1alpha1/namespaces/llm/speculativedeployments/chat/status",
        ),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


async def test_hung_server_ends_in_time_as_unavailable() -> None:
    async with a_fake_api() as fake, a_client(fake, timeout_seconds=0.1) as client:
        fake.hang = True
        with pytest.raises(Unavailable, match="get /api/v1/namespaces/llm/configmaps/x"):
            await client.get(CONFIG_MAP, "llm", "x")


async def test_refused_connection_is_unavailable_and_observed() -> None:
    seen: list[tuple[str, str, int]] = []

    def observe(*found: Any) -> None:
        seen.append(found)

    async with a_fake_api() as fake:
        url = fake.url
    fake.url = url
    async with a_client(fake, observe=observe) as client:
        with pytest.raises(Unavailable):
            await client.get(CONFIG_MAP, "llm", "x")
    assert seen == [("get", "ConfigMap", 0)]


@pytest.mark.parametrize(
    "old,new",
    [
        ({}, {"a": 1}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}),
        ({"a": [1, 2]}, {"a": []}),
        ({"a": {"b": {"c": 1}}}, {"a": {}}),
    ],
)
def test_merge_patch_leaves_nothing_of_the_old(old: dict[str, Any], new: dict[str, Any]) -> None:
    patch = replacing(old, new)
    assert merged(old, patch) == new


def merged(old: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """RFC 7396."""
    found = dict(old)
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            before = found.get(key)
            found[key] = merged(before if isinstance(before, dict) else {}, value)
        else:
            found[key] = value
    return found


@pytest.mark.parametrize(
    "line",
    [
        b"<html>",
        b"[]",
        b"null",
        b"{}",
        b'{"type": "ADDED"}',
        b'{"type": "ADDED", "object": null}',
        b'{"type": "ADDED", "object": []}',
        b'{"type": "ADDED", "object": {}}',
        b'{"type": "ADDED", "object": {"metadata": null}}',
        b'{"type": "ERROR", "object": null}',
        b'{"type": "ERROR", "object": {"code": "x"}}',
        b'{"type": "ERROR", "object": {"code": null}}',
    ],
)
def test_a_line_that_is_no_event_ends_the_watch_and_nothing_else(line: bytes) -> None:
    with pytest.raises(NotReadable, match="bytes are not an event"):
        event_of(line, "/x")


@pytest.mark.parametrize(
    ("code", "expected"), [(410, Gone), (429, Unavailable), (500, Unavailable), (403, Refused)]
)
def test_an_error_on_a_watch_is_its_error(code: int, expected: type[ApiError]) -> None:
    line = json.dumps({"type": "ERROR", "object": {"code": code, "message": "why"}}).encode()
    with pytest.raises(expected, match="why"):
        event_of(line, "/x")
