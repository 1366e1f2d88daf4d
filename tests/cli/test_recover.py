"""`recover`: names stable, says what it asks, and is refused where nothing drifted."""

from typing import Any

import pytest
from tests.cli.fake_api import FakeApi
from tests.cli.objects import FAILED, STABLE, START, a_resource, canary, condition
from tests.cli.test_verbs import annotations, api, run

from speculative_cli.resource import parse
from speculative_cli.screen import details

__all__ = ["api", "run"]

DRIFTED = condition("AcceptanceDrifted", "True", "SpeculationDisabled", "2 of 2 pods")
STEADY = condition("AcceptanceDrifted", "False", "AcceptanceSteady", "97 percent")


def drift(state: str = "Disabled", **fields: Any) -> dict[str, Any]:
    return {"drift": {"hash": STABLE, "state": state, "since": START} | fields}


@pytest.mark.parametrize(("options", "named"), [([], ""), (["--rebaseline"], "/rebaseline")])
def test_it_names_stable_and_is_new_each_time(
    api: FakeApi, run: Any, options: list[str], named: str
) -> None:
    api.put(a_resource(**drift()))
    assert run("recover", "chat", *options) == 0
    revision, _, moment = annotations(api)["speculative.dev/recover"].partition("@")
    assert revision == STABLE + named
    assert moment


REFUSED = {
    "not judged": ({}, [], "spec.rollout.drift"),
    "another revision's": (drift(hash=FAILED), [], "spec.rollout.drift"),
    "another was meant": (drift(), ["--hash", FAILED], f"is {STABLE}, not {FAILED}"),
}


@pytest.mark.parametrize(("status", "options", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_it_is_refused(
    api: FakeApi, run: Any, capsys: Any, status: Any, options: list[str], said: str
) -> None:
    api.put(a_resource(**status))
    assert run("recover", "chat", *options) != 0
    assert said in capsys.readouterr().err
    assert api.patches == []


def test_what_has_not_drifted_is_left_alone(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource(**drift("Steady")))
    assert run("recover", "chat") == 0
    assert "has not drifted" in capsys.readouterr().out
    assert api.patches == []


def test_wait_tells_that_it_was_acted_on(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource(**drift()))

    def acted(resource: dict[str, Any]) -> None:
        asked = resource["metadata"]["annotations"]["speculative.dev/recover"]
        resource["status"]["observedRecover"] = asked

    api.on_patch = acted
    assert run("recover", "chat", "--wait") == 0
    assert f"{STABLE} is judged anew" in capsys.readouterr().out


def shown(found: Any, **status: Any) -> str:
    from datetime import UTC, datetime

    raw = a_resource(**status)
    raw["status"]["conditions"] = [*raw["status"]["conditions"], found]
    return "\n".join(details(parse(raw), datetime.now(UTC)))


def test_status_shows_an_alarm_and_the_way_out() -> None:
    text = shown(DRIFTED)
    assert "AcceptanceDrifted=True SpeculationDisabled" in text
    assert "kubectl speculative recover chat -n llm" in text
    assert "AcceptanceDrifted" not in shown(STEADY)
    assert "recover" not in shown(STEADY)
    assert "recover" not in shown(DRIFTED, canary=canary())
