"""Every golden object is taken by a real API server, unknown fields being errors."""

import pytest
import yaml
from tests.charts.dry_run import dry_run
from tests.cluster.envtest import Server
from tests.cluster.foreign_kinds import Kind, groups_kind, pool_kind
from tests.golden import cases

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("case", cases.names())
def test_the_server_takes_every_object(case: str, api_server: Server) -> None:
    bodies = list(yaml.safe_load_all(cases.rendered(case)))
    kinds = {
        "HTTPRoute": Kind(api_server),
        "InferencePool": pool_kind(api_server),
        "LeaderWorkerSet": groups_kind(api_server),
    }
    for kind in {body["kind"] for body in bodies} & kinds.keys():
        kinds[kind].install()
    try:
        for body in bodies:
            dry_run(api_server, body)
    finally:
        for found in kinds.values():
            found.remove()
