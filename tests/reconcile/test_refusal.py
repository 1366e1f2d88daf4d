"""A spec that can't be read: one condition, one event, nothing else, until it is edited."""

from typing import Any

from tests.builders import NAME, NAMESPACE, NOW, UID, a_raw_spec, a_status, some_words
from tests.reconcile.test_gather import Silence

from speculative_operator.cluster.access import Access
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.reflector import Store
from speculative_operator.cluster.resources import (
    JSON,
    SPECULATIVE_DEPLOYMENT,
    WATCHED,
    Resource,
)
from speculative_operator.reconcile import REFUSED_SECONDS, Reconciler
from speculative_operator.settings import Settings


class Recorder(Client):
    """Keeps what is sent; answers a status write with the parent that has it."""

    def __init__(self, parent: JSON) -> None:
        super().__init__(Access("http://nowhere"))
        self.parent = parent
        self.sent: list[tuple[str, str]] = []

    async def request(
        self, verb: str, resource: Resource, method: str, path: str, **settings: Any
    ) -> tuple[int, JSON]:
        del method, path
        self.sent.append((verb, resource.kind))
        if verb == "patch-status":
            metadata = self.parent["metadata"]
            version = str(int(metadata["resourceVersion"]) + 1)
            status = {k: v for k, v in settings["body"]["status"].items() if v is not None}
            metadata = metadata | {"resourceVersion": version}
            self.parent = self.parent | {"metadata": metadata, "status": status}
        return 200, self.parent


async def test_spec_forced_past_the_schema_is_refused_once_and_touches_nothing() -> None:
    stable = a_status(stable=some_words())
    parent = {
        "metadata": {
            "name": NAME,
            "namespace": NAMESPACE,
            "uid": UID,
            "generation": 2,
            "resourceVersion": "5",
        },
        "spec": a_raw_spec(speculation={"method": "NGram", "numSpeculativeTokens": 0}),
        "status": stable.model_dump(mode="json", by_alias=True, exclude_none=True),
    }
    client = Recorder(parent)
    stores = {resource.kind: Store(resource) for resource in WATCHED}
    stores[SPECULATIVE_DEPLOYMENT.kind].put(parent)
    reconciler = Reconciler(client, stores, Silence(), Settings(), utc_now=lambda: NOW)
    for _ in range(3):
        assert await reconciler.look((NAMESPACE, NAME)) == REFUSED_SECONDS
    assert client.sent == [("patch-status", "SpeculativeDeployment"), ("create", "Event")]
    accepted = client.parent["status"]["conditions"][0]
    assert (accepted["status"], accepted["reason"]) == ("False", "InvalidSpec")
    assert "greater than or equal to 1" in accepted["message"]
    assert client.parent["status"]["stable"]["hash"] == some_words().hash
