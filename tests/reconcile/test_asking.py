"""Whether a pass waits for its pods: an abort does not, whenever it comes."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from tests.builders import NAME, NAMESPACE, UID, a_raw_spec, a_status, some_words
from tests.cluster.fake_api import a_client, a_fake_api
from tests.cluster.waiting import until
from tests.reconcile.test_gather import KEY, Silence, stores_with

from speculative_api.labels import ABORT, RETRY
from speculative_operator.asking import Asking
from speculative_operator.cluster.resources import JSON, SPECULATIVE_DEPLOYMENT
from speculative_operator.metrics.source import Target
from speculative_operator.operation import Operation
from speculative_operator.readings import Readings
from speculative_operator.settings import Settings
from speculative_operator.specs import Specs
from speculative_operator.telemetry import Telemetry

CANARY = some_words(6)


class Hanging(Silence):
    """Pods that do not answer."""

    waiting = 0

    async def ask(self, targets: Iterable[Target]) -> None:
        del targets
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


def a_parent() -> JSON:
    status = a_status(stable=some_words(), canary=CANARY)
    return {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "annotations": {},
        },
        "spec": a_raw_spec(),
        "status": status.model_dump(mode="json", by_alias=True, exclude_none=True),
    }


class World:
    def __init__(self) -> None:
        self.source = Hanging()
        self.stores = stores_with((SPECULATIVE_DEPLOYMENT, a_parent()))
        settings = Settings()
        self.asking = Asking(self.stores, self.source, None, Specs(settings), Readings())

    def annotate(self, annotation: str, value: str) -> None:
        parent = a_parent()
        parent["metadata"]["annotations"][annotation] = value
        self.stores[SPECULATIVE_DEPLOYMENT.kind].put(parent)
        self.asking.hear(KEY)

    async def asked(self) -> "asyncio.Task[None]":
        """A pass that waits for its pods."""
        task = asyncio.create_task(self.asking.ask(KEY, a_parent(), self.source))
        await until(lambda: self.source.waiting)
        return task


async def test_an_abort_that_comes_meanwhile_waits_for_nobody() -> None:
    world = World()
    task = await world.asked()
    world.annotate(ABORT, f"{CANARY.hash}@now")
    await asyncio.wait_for(task, 5)
    assert not world.source.waiting


async def test_one_that_is_there_already_asks_nobody() -> None:
    world = World()
    world.annotate(ABORT, f"{CANARY.hash}@now")
    await asyncio.wait_for(world.asking.ask(KEY, a_parent(), world.source), 5)


@pytest.mark.parametrize(
    ("annotation", "value"), [(RETRY, f"{CANARY.hash}@now"), (ABORT, "0123456789@now")]
)
async def test_other_words_wait(annotation: str, value: str) -> None:
    world = World()
    task = await world.asked()
    world.annotate(annotation, value)
    await asyncio.sleep(0.05)
    assert world.source.waiting
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_pass_that_is_stopped_stops_although_an_abort_waits() -> None:
    world = World()
    task = await world.asked()
    world.annotate(ABORT, f"{CANARY.hash}@now")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not world.source.waiting


async def test_an_error_in_asking_is_the_passs(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def broken(targets: Any) -> None:
        raise ValueError("broken")

    monkeypatch.setattr(world.source, "ask", broken)
    with pytest.raises(ValueError, match="broken"):
        await world.asking.ask(KEY, a_parent(), world.source)


async def test_a_working_operator_hears_the_abort() -> None:
    source, annotated = Hanging(), a_parent()
    annotated["metadata"]["annotations"][ABORT] = f"{CANARY.hash}@now"
    async with a_fake_api() as fake, a_client(fake) as client:
        operation = Operation(client, source, Settings(), Telemetry())
        store = operation.stores[SPECULATIVE_DEPLOYMENT.kind]
        store.put(a_parent())
        for reflector in operation.reflectors.values():
            reflector.synced.set()
        operation.begin()
        try:
            await until(lambda: source.waiting)
            store.put(annotated)
            operation.wake(KEY, by_a_person=True)
            await until(lambda: not source.waiting)
        finally:
            await operation.end()
