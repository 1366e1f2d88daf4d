"""An old CRD in a real API server: named field by field, and current again once applied."""

import copy
from typing import Any

import pytest
import yaml
from tests.cluster.envtest import CRD, Server
from tests.reconcile.test_process_on_server import until

from speculative_api.schema import custom_resource_definition
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.crd import Findings, compare

pytestmark = pytest.mark.cluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def put(server: Server, crd: dict[str, Any]) -> None:
    path = f"{CRDS}/{crd['metadata']['name']}"
    live = yaml.safe_load(server.raw("GET", path))
    crd = copy.deepcopy(crd)
    crd["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"]
    server.raw("PUT", path, yaml.safe_dump(crd).encode())


async def test_old_crd_is_found_and_a_new_one_too(api_server: Server) -> None:
    older = custom_resource_definition()
    root = older["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del root["spec"]["properties"]["rollout"]["properties"]["revisionHistoryLimit"]
    del root["status"]["properties"]["canary"]["properties"]["held"]
    async with Client(api_server.access) as client:

        async def is_current() -> bool:
            return await compare(client) == Findings()

        await until(is_current)
        put(api_server, older)
        try:

            async def is_old() -> Findings | None:
                found = await compare(client)
                return None if found.is_current else found

            found = await until(is_old)
            assert [each.path for each in found.spec] == ["spec.rollout.revisionHistoryLimit"]
            assert [each.path for each in found.status] == ["status.canary.held"]
            assert "Run: do it" in found.sentence("do it")
        finally:
            put(api_server, yaml.safe_load(CRD.read_text()))
        await until(is_current)
