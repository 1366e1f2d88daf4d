"""What a restart does to templates: a stamp that stays, a rendering that can be taken back."""

from dataclasses import replace
from typing import Any

from tests.builders import a_deployment, a_snapshot, a_spec, a_status, some_words, stamp
from tests.desired.test_objects import rendered

from speculative_api.labels import RENDER, RESTARTED_AT
from speculative_operator.desired.workers import pod_template
from speculative_operator.settings import Settings
from speculative_operator.snapshot import RevisionRecord, Snapshot

STABLE = some_words(4)
THEN, TODAY = Settings(worker_image="worker:1"), Settings(worker_image="worker:2")
AT = stamp(5)


def world(restart: dict[str, Any] | None = None, *, restarted_at: str = "") -> Snapshot:
    template = pod_template(STABLE, name="chat", settings=THEN)
    record = RevisionRecord(STABLE.hash, 1, STABLE.canonical, template)
    view = replace(a_deployment(STABLE), restarted_at=restarted_at)
    found = (
        {"restart": {"hash": STABLE.hash, "at": "x", "stamp": AT} | restart}
        if restart is not None
        else {}
    )
    status = a_status(stable=STABLE, **found)
    return a_snapshot(a_spec(k=4), status=status, revisions=[record], deployments=[view])


def template_of(snapshot: Snapshot) -> dict[str, Any]:
    bodies = rendered(snapshot, TODAY)
    found: dict[str, Any] = bodies[f"Deployment/chat-{STABLE.hash}"]["spec"]["template"]
    return found


def stamp_of(snapshot: Snapshot) -> str | None:
    return template_of(snapshot)["metadata"].get("annotations", {}).get(RESTARTED_AT)


def image_of(snapshot: Snapshot) -> str:
    return str(template_of(snapshot)["spec"]["containers"][0]["image"])


def records_of(snapshot: Snapshot) -> dict[str, Any]:
    bodies = rendered(snapshot, TODAY)
    return {k.partition("/")[2]: b for k, b in bodies.items() if b["kind"] == "ControllerRevision"}


def stored(snapshot: Snapshot) -> Snapshot:
    """The same world once the new rendering is in the store."""
    old = snapshot.revisions[STABLE.hash]
    template = pod_template(STABLE, name="chat", settings=TODAY)
    new = replace(old, template=template, render=1)
    return replace(snapshot, revisions={STABLE.hash: new}, older_renders=(old,))


def test_a_newer_operator_and_no_restart_change_nothing() -> None:
    assert (image_of(world()), stamp_of(world())) == ("worker:1", None)
    assert list(records_of(world())) == [f"chat-{STABLE.hash}"]


def test_a_restart_stamps_the_template_and_keeps_the_rest() -> None:
    assert (image_of(world({})), stamp_of(world({}))) == ("worker:1", AT)
    assert list(records_of(world({}))) == [f"chat-{STABLE.hash}"]


def test_the_stamp_stays_whatever_status_says_later() -> None:
    assert stamp_of(world(restarted_at="long ago")) == "long ago"
    assert stamp_of(world({"hash": "0123456789"}, restarted_at="long ago")) == "long ago"
    assert stamp_of(world({"outcome": "Done"}, restarted_at=AT)) == AT


def test_a_rerender_stores_todays_template_beside_the_old_one() -> None:
    snapshot = world({"render": 1})
    for moment in (snapshot, stored(snapshot)):
        assert (image_of(moment), stamp_of(moment)) == ("worker:2", AT)
        records = records_of(moment)
        assert set(records) == {f"chat-{STABLE.hash}", f"chat-{STABLE.hash}-r1"}
        new = records[f"chat-{STABLE.hash}-r1"]
        assert new["metadata"]["annotations"][RENDER] == "1"
        assert new["data"]["spec"] == records[f"chat-{STABLE.hash}"]["data"]["spec"]


def test_the_old_rendering_goes_when_the_restart_is_done() -> None:
    snapshot = stored(world({"render": 1, "outcome": "Done"}, restarted_at=AT))
    assert image_of(snapshot) == "worker:2"
    assert list(records_of(snapshot)) == [f"chat-{STABLE.hash}-r1"]


def test_a_rendering_taken_back_leaves_no_trace() -> None:
    snapshot = stored(world({"render": 1, "outcome": "Reverted"}, restarted_at=AT))
    assert template_of(snapshot) == template_of(world())
    assert list(records_of(snapshot)) == [f"chat-{STABLE.hash}"]
    twice = world({"render": 1, "outcome": "Reverted", "stampBefore": "first"}, restarted_at=AT)
    assert stamp_of(stored(twice)) == "first"


def test_the_same_template_is_not_stored_twice() -> None:
    snapshot = world({"render": 1})
    record = snapshot.revisions[STABLE.hash]
    today = replace(record, template=pod_template(STABLE, name="chat", settings=TODAY))
    snapshot = replace(snapshot, revisions={STABLE.hash: today})
    assert list(records_of(snapshot)) == [f"chat-{STABLE.hash}"]
    assert stamp_of(snapshot) == AT
