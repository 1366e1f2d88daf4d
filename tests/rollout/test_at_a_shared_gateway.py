"""What conditions say of a resource at a shared gateway."""

from dataclasses import replace

import pytest
from tests.builders import a_snapshot, a_spec, a_status, some_words

from speculative_operator.rollout.decide import decide
from speculative_operator.snapshot import SharedView, Snapshot

SPEC = a_spec(gateway={"mode": "Shared", "shared": {"name": "edge"}})
DIFFERING = ("gateway.replicas is 2 here and not set there",)


def a_world(**view: object) -> Snapshot:
    shared = SharedView(gateway="edge", **view)  # type: ignore[arg-type]
    return replace(a_snapshot(SPEC, status=a_status(stable=some_words())), shared=shared)


@pytest.mark.parametrize(
    ("view", "accepted", "gateway", "words"),
    [
        ({"joined": True}, "Valid", "GatewayNotServing", "shared with nobody else yet"),
        (
            {"joined": True, "others": ("code", "late")},
            "Valid",
            "GatewayNotServing",
            "Gateway edge, shared with code, late.",
        ),
        # it is served on, by what is in force
        (
            {"joined": True, "others": ("code",), "differing": DIFFERING},
            "SharedSettingsDiffer",
            "GatewayNotServing",
            "0 of 1 gateway pods",
        ),
        (
            {"others": ("code",), "differing": DIFFERING},
            "SharedSettingsDiffer",
            "SharedSettingsDiffer",
            "gateway.replicas is 2 here and not set there at gateway edge (with code)",
        ),
        (
            {"joined": True, "lost_hosts": ("a.example.com",)},
            "HostTaken",
            "GatewayNotServing",
            "shared with",
        ),
        (
            {"conflicts": ("Service/edge-gateway",)},
            "Valid",
            "NameConflict",
            "Service/edge-gateway: needed for gateway edge",
        ),
    ],
)
def test_conditions_say_what_is_not_in_force_and_why(
    view: dict[str, object], accepted: str, gateway: str, words: str
) -> None:
    found = {c.type: c for c in decide(a_world(**view)).status.conditions}
    assert found["Accepted"].reason == accepted
    assert found["Accepted"].status == ("True" if accepted == "Valid" else "False")
    assert found["GatewayReady"].reason == gateway
    assert words in found["GatewayReady"].message
