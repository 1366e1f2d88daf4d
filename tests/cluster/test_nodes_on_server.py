"""What autoscalers of nodes say about a pod, read from a real API server."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from tests.cluster.envtest import Server

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.nodes import node_news
from speculative_operator.cluster.resources import EVENT

pytestmark = pytest.mark.cluster


@pytest.fixture
async def client(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


async def say(client: Client, number: int, uid: str, **fields: Any) -> None:
    body = {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.kind,
        "metadata": {"name": f"news.{uid}.{number}", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": uid},
        "reason": "TriggeredScaleUp",
        "message": "pod triggered scale-up: [{gpus 1->2 (max: 8)}]",
        "source": {"component": "cluster-autoscaler"},
        "lastTimestamp": "2026-01-02T03:04:05Z",
        **fields,
    }
    await client.create(EVENT, body)


async def test_the_newest_word_about_these_pods_counts(client: Client) -> None:
    await say(client, 1, "pod-1")
    await say(
        client,
        2,
        "pod-2",
        reason="Nominated",
        message="Pod should schedule on: nodeclaim/gpu-7",
        source={"component": "karpenter"},
        lastTimestamp="2026-01-02T03:09:05Z",
    )
    await say(client, 3, "pod-3", lastTimestamp="2026-01-02T04:00:00Z")
    found = await node_news(client, "default", ["pod-1", "pod-2"])
    assert found is not None
    assert found.words == "karpenter: Pod should schedule on: nodeclaim/gpu-7"
    assert found.at == 1767323345.0
    assert await node_news(client, "default", ["nobody"]) is None


async def test_what_others_say_is_no_news(client: Client) -> None:
    await say(client, 1, "pod-4", source={"component": "somebody"})
    await say(client, 2, "pod-4", reason="FailedScheduling", source={"component": "karpenter"})
    assert await node_news(client, "default", ["pod-4"]) is None


async def test_where_events_may_not_be_read_nobody_says_anything(api_server: Server) -> None:
    async def nobody() -> str:
        return "Bearer test-nobody"

    async with Client(replace(api_server.access, authorization=nobody)) as client:
        assert await node_news(client, "default", ["pod-1"]) is None
