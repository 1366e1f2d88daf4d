"""Notifications over a real API server: none lost by a crash, none told twice by a pass."""

from collections.abc import AsyncIterator

import pytest
from tests.cluster.envtest import Server
from tests.reconcile.test_notify import Receiver, a_desk, serving
from tests.reconcile.test_rollout_on_server import (
    ANOTHER_K,
    CrashingClient,
    a_run,
    is_complete,
    never,
    words_hash,
)

from speculative_operator.cluster.client import Client
from speculative_operator.reconcile import Reconciler

pytestmark = pytest.mark.cluster

ROLLOUT = {
    "steps": [{"weight": 50}, {"pause": {"durationSeconds": 60}}],
    "guard": {"durationSeconds": 30},
    "notifications": [{"urlSecret": {"name": "hook"}, "format": "CloudEvents"}],
}


@pytest.fixture
async def outside(api_server: Server) -> AsyncIterator[Client]:
    async with Client(api_server.access) as client:
        yield client


def told(receiver: Receiver) -> list[tuple[str, str]]:
    return [(body["data"]["event"], body["subject"]) for _, _, body in receiver.got]


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_rollout_is_told_once_or_again_after_a_crash(
    api_server: Server, outside: Client, crashes: bool
) -> None:
    async with (
        CrashingClient(
            api_server.access, before=never, after=(lambda _: True) if crashes else never
        ) as client,
        serving(Receiver()) as receiver,
        a_desk() as desk,
    ):
        run = await a_run(outside, client)
        desk.secrets["default/hook/url"] = receiver.url

        def with_notifier() -> Reconciler:
            made = type(run).a_new_process(run)
            made._notifier = desk.notifier
            return made

        run.a_new_process = with_notifier  # type: ignore[method-assign]
        run.reconciler = with_notifier()
        await run.simulation.create(rollout=ROLLOUT)
        await run.until(is_complete)
        await run.simulation.change(ANOTHER_K)
        canary = words_hash(await run.simulation.parent())
        run.simulation.acceptance[canary] = 0.05

        await run.until(lambda s: is_complete(s) and s.get("failedRevisions"))
        await desk.until(lambda: len(receiver.got) >= 2)
        await desk.until(lambda: len(desk.woken) >= 2)
        await run.passes()
        status = await run.simulation.status()
        assert not status.get("pendingNotifications")
        # The notifier outlives these crashes of the pass, so that even then each comes once.
        assert told(receiver) == [("Started", canary), ("RolledBack", canary)]
