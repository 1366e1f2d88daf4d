"""The real API server on adaptive lengths and simulated faults: what is taken, what is not."""

from typing import Any

import pytest
from tests.builders import a_raw_spec
from tests.cluster.envtest import Server
from tests.cluster.test_resource_on_server import refused

pytestmark = pytest.mark.cluster

RANGES = [{"upToBatchSize": 64, "numSpeculativeTokens": 0}]


def a_spec(*, adaptive: Any = None, method: str = "NGram", fault: Any = None) -> dict[str, Any]:
    speculation: dict[str, Any] = {"method": method}
    if method != "None":
        speculation["numSpeculativeTokens"] = 4
    if adaptive is not None:
        speculation["adaptive"] = adaptive
    faults = [fault] if fault else []
    return a_raw_spec(speculation=speculation, engine={"simulation": {"faults": faults}})


@pytest.mark.parametrize(
    "words",
    [
        {"adaptive": {}},
        {"adaptive": {"mode": "Online", "minAcceptancePercent": 30}},
        {"adaptive": {"mode": "BatchSize", "schedule": RANGES}},
        {"adaptive": {"mode": "Off"}, "method": "None"},
        {"fault": {"kind": "WrongTokens", "percent": 1}},
        {"fault": {"kind": "Crash", "sample": "Draft", "afterSeconds": 60}},
    ],
    ids=["empty", "online", "schedule", "off without a method", "wrong tokens", "crash"],
)
def test_taken(api_server: Server, words: dict[str, Any]) -> None:
    with pytest.raises(pytest.fail.Exception, match="took it"):
        refused(api_server, a_spec(**words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"adaptive": {"mode": "BatchSize"}}, "mode BatchSize and schedule go together"),
        ({"adaptive": {"mode": "Online", "schedule": RANGES}}, "go together"),
        ({"adaptive": {"minAcceptancePercent": 3}}, "belongs to mode Online"),
        ({"adaptive": {"mode": "Online"}, "method": "None"}, "drafts nothing"),
        ({"adaptive": {"mode": "Sometimes"}}, "Unsupported value"),
        ({"fault": {"kind": "Slow"}}, "needs percent"),
        ({"fault": {"kind": "RefuseParameter"}}, "needs parameter"),
        ({"fault": {"kind": "Stall", "text": "x"}}, "belong to kind Crash"),
    ],
    ids=[
        "no schedule",
        "a schedule online",
        "a threshold while off",
        "no method",
        "no mode",
        "slow by how much",
        "which parameter",
        "words of a stall",
    ],
)
def test_refused_with_the_remedy(api_server: Server, words: dict[str, Any], message: str) -> None:
    assert message in refused(api_server, a_spec(**words))
