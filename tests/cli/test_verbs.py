"""The verbs, from the command line to what the API server is asked."""

import io
import json
import os
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.cli.fake_api import FakeApi, serving
from tests.cli.objects import (
    CANARY,
    FAILED,
    PARKED,
    STABLE,
    START,
    a_resource,
    canary,
    condition,
    failed,
    stable,
)

from speculative_cli.__main__ import main


@pytest.fixture
def api(tmp_path: Path) -> Iterator[FakeApi]:
    with serving(FakeApi()) as found:
        found.kubeconfig(tmp_path)
        yield found


@pytest.fixture
def run(api: FakeApi, tmp_path: Path) -> Any:
    def call(*argv: str) -> int:
        return main([*argv, "--kubeconfig", str(tmp_path / "kubeconfig")])

    return call


def annotations(api: FakeApi) -> dict[str, str]:
    assert len(api.patches) == 1
    found: dict[str, str] = api.patches[0]["metadata"]["annotations"]
    assert list(api.patches[0]) == ["metadata"]
    return found


def test_status_prints_the_screen(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource())
    assert run("status", "chat") == 0
    assert f"stable  3 ({STABLE})  100 %  4/4 ready" in capsys.readouterr().out
    assert api.patches == []


def test_status_as_json_is_one_document(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource(canary=canary()))
    assert run("status", "chat", "-o", "json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["status"]["canary"]["hash"] == CANARY
    assert found["step"] == 2


def test_promote_names_the_revision_and_the_step(api: FakeApi, run: Any) -> None:
    api.put(a_resource(canary=canary()))
    assert run("promote", "chat") == 0
    assert annotations(api) == {"speculative.dev/promote": f"{CANARY}/1@{START}"}


def test_promote_in_full_names_the_revision(api: FakeApi, run: Any) -> None:
    api.put(a_resource(canary=canary(step=-1, readyReplicas=0)))
    assert run("promote", "chat", "--full") == 0
    assert annotations(api) == {"speculative.dev/promote": f"{CANARY}/full@{START}"}


@pytest.mark.parametrize("step", [0, 1])
def test_a_skip_names_the_revision_and_the_step(api: FakeApi, run: Any, step: int) -> None:
    api.put(a_resource(canary=canary(step=step)))
    assert run("promote", "chat", "--skip-step", "--step", str(step + 1)) == 0
    assert annotations(api) == {"speculative.dev/promote": f"{CANARY}/{step}/skip@{START}"}


@pytest.mark.parametrize(("options", "named"), [([], ""), (["--rerender"], "/rerender")])
def test_restart_names_stable_and_is_new_each_time(
    api: FakeApi, run: Any, options: list[str], named: str
) -> None:
    api.put(a_resource())
    assert run("restart", "chat", *options) == 0
    revision, _, moment = annotations(api)["speculative.dev/restart"].partition("@")
    assert revision == STABLE + named
    assert datetime.fromisoformat(moment).tzinfo is not None


DONE_ALREADY = {
    "restart, under way": (
        ["restart"],
        {"restart": {"hash": STABLE, "at": START, "stamp": START}},
        f"the pods of {STABLE} are being replaced already",
    ),
    "promote, stable": (["promote", "--hash", STABLE], {}, f"{STABLE} is the stable revision"),
    "promote, past the step": (
        ["promote", "--hash", CANARY, "--step", "1"],
        {"canary": canary()},
        "past step 1 already, in step 2 of 2",
    ),
    "promote in full, twice": (
        ["promote", "--full"],
        {"canary": canary(step=2)},
        "is being promoted already",
    ),
    "abort, failed": (
        ["abort", "--hash", FAILED],
        {"canary": canary(), "failedRevisions": [failed()]},
        f"{FAILED} was taken out already (AcceptanceWorse)",
    ),
    "resume, another": (["resume", "--hash", CANARY], {}, f"{CANARY} is not held"),
    "retry, on trial": (
        ["retry", "--hash", CANARY],
        {"canary": canary()},
        f"{CANARY} is on trial already",
    ),
}


@pytest.mark.parametrize(("verb", "status", "said"), DONE_ALREADY.values(), ids=DONE_ALREADY.keys())
def test_what_is_so_already_is_said_and_not_written(
    api: FakeApi, run: Any, capsys: Any, verb: list[str], status: Any, said: str
) -> None:
    api.put(a_resource(**status))
    assert run(verb[0], "chat", *verb[1:]) == 0
    out = capsys.readouterr().out
    assert out.startswith("nothing to do: ")
    assert said in out
    assert api.patches == []


def test_abort_names_the_revision(api: FakeApi, run: Any) -> None:
    api.put(a_resource(canary=canary(step=-1)))
    assert run("abort", "chat") == 0
    assert annotations(api) == {"speculative.dev/abort": f"{CANARY}@{START}"}


@pytest.mark.parametrize("argv", [[], ["--hash", CANARY]])
def test_retry_tries_a_parked_revision_at_once(api: FakeApi, run: Any, argv: list[str]) -> None:
    api.put(a_resource(parked=PARKED))
    assert run("retry", "chat", *argv) == 0
    assert annotations(api)["speculative.dev/retry"].partition("@")[0] == CANARY


class Gone(io.StringIO):
    """Standard output whose reader went away."""

    def __init__(self, file: io.IOBase) -> None:
        super().__init__()
        self.file = file

    def fileno(self) -> int:
        return self.file.fileno()

    def flush(self) -> None:
        raise BrokenPipeError


@pytest.mark.parametrize(
    "argv",
    [["status", "chat"], ["status", "chat", "-o", "json"], ["list"], ["abort", "chat"]],
    ids=" ".join,
)
def test_a_reader_that_goes_away_ends_it_quietly(
    api: FakeApi, run: Any, tmp_path: Path, monkeypatch: Any, capsys: Any, argv: list[str]
) -> None:
    api.put(a_resource(canary=canary()))
    with (tmp_path / "pipe").open("w+") as file:
        monkeypatch.setattr("sys.stdout", Gone(file))
        assert run(*argv) == 141
        assert os.readlink(f"/proc/self/fd/{file.fileno()}") == os.devnull
    assert capsys.readouterr().err == ""
    assert len(api.patches) == (argv[0] == "abort")


def test_retry_names_the_revision_and_is_new_each_time(api: FakeApi, run: Any) -> None:
    api.put(a_resource(failedRevisions=[failed()]))
    assert run("retry", "chat") == 0
    revision, _, moment = annotations(api)["speculative.dev/retry"].partition("@")
    assert revision == FAILED
    assert datetime.fromisoformat(moment).tzinfo is not None


def test_pause_names_the_revision_and_resume_takes_it_back(api: FakeApi, run: Any) -> None:
    api.put(a_resource(canary=canary()))
    assert run("pause", "chat") == 0
    assert annotations(api) == {"speculative.dev/pause": CANARY}
    api.patches.clear()
    assert run("resume", "chat") == 0
    assert annotations(api) == {"speculative.dev/pause": None}


def test_pause_after_promotion_holds_the_guard(api: FakeApi, run: Any) -> None:
    guard = {"revision": 2, "hash": FAILED, "startedAt": START, "weight": 5}
    api.put(a_resource(guard=guard))
    assert run("pause", "chat") == 0
    assert annotations(api) == {"speculative.dev/pause": STABLE}


HELD = [condition("Progressing", "Unknown", "PausedOnRequest")]
REFUSED = {
    "promote, no canary": (["promote"], {}, "has no canary"),
    "abort, no canary": (["abort"], {}, "has no canary"),
    "promote in the guard": (
        ["promote"],
        {"guard": {"revision": 2, "hash": FAILED, "startedAt": START, "weight": 5}},
        "was promoted already",
    ),
    "promote, not ready": (
        ["promote"],
        {"canary": canary(step=-1, readyReplicas=0)},
        r"not ready yet \(0 of 2 pods\)",
    ),
    "promote, another step": (
        ["promote", "--step", "1"],
        {"canary": canary()},
        "is in step 2 of 2, not in step 1",
    ),
    "promote, a weight on its way": (["promote"], {"canary": canary(step=0)}, "not a pause"),
    "promote, all steps done": (["promote"], {"canary": canary(step=2)}, "being promoted"),
    "promote, another revision": (
        ["promote", "--full", "--hash", FAILED],
        {"canary": canary()},
        f"the canary is {CANARY}, not {FAILED}",
    ),
    "abort, another revision": (
        ["abort", "--hash", STABLE],
        {"canary": canary()},
        f"the canary is {CANARY}, not {STABLE}",
    ),
    "pause, another revision": (
        ["pause", "--hash", STABLE],
        {"canary": canary()},
        f"the canary is {CANARY}, not {STABLE}",
    ),
    "promote in full, held on request": (
        ["promote", "--full"],
        {"canary": canary(), "conditions": HELD},
        "resume it first",
    ),
    "promote, held on request": (
        ["promote"],
        {"canary": canary(held="PausedOnRequest"), "conditions": HELD},
        "resume it first",
    ),
    "restart, a canary": (["restart"], {"canary": canary()}, f"{CANARY} is on trial"),
    "restart, under guard": (
        ["restart"],
        {"guard": {"revision": 2, "hash": FAILED, "startedAt": START, "weight": 5}},
        f"{STABLE} is on trial",
    ),
    "restart, another revision": (
        ["restart", "--hash", FAILED],
        {},
        f"the stable revision is {STABLE}, not {FAILED}",
    ),
    "restart, nothing there": (["restart"], {"stable": None}, "has no stable revision yet"),
    "pause, no canary": (["pause"], {}, "nothing to pause"),
    "resume, nothing held": (["resume"], {}, "nothing to resume"),
    "retry, none failed": (["retry"], {}, "no revision has failed"),
    "retry, another failed": (
        ["retry", "--hash", CANARY],
        {"failedRevisions": [failed()]},
        "has not failed",
    ),
    "retry, which one?": (
        ["retry"],
        {"failedRevisions": [failed(), failed(CANARY)]},
        rf"name one with --hash: {FAILED} .*{CANARY}",
    ),
}


@pytest.mark.parametrize(("verb", "status", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_makes_no_sense_is_refused_and_not_written(
    api: FakeApi, run: Any, capsys: Any, verb: list[str], status: Any, message: str
) -> None:
    api.put(a_resource(**status))
    assert run(verb[0], "chat", *verb[1:]) == 4
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert api.patches == []


def test_promote_goes_past_a_step_that_is_held(api: FakeApi, run: Any) -> None:
    api.put(a_resource(canary=canary(step=0, held="AnalysisInconclusive")))
    assert run("promote", "chat") == 0
    assert annotations(api) == {"speculative.dev/promote": f"{CANARY}/0@{START}"}


def test_promote_ends_a_shadow_as_it_ends_a_pause(api: FakeApi, run: Any) -> None:
    steps = [{"shadow": {"percent": 10}}, {"weight": 5}]
    api.put(a_resource(steps=steps, canary=canary(step=0, weight=0, shadow=10)))
    assert run("promote", "chat") == 0
    assert annotations(api) == {"speculative.dev/promote": f"{CANARY}/0@{START}"}


def aborted(raw: dict[str, Any]) -> None:
    del raw["status"]["canary"]
    raw["status"]["verdict"] = {
        "hash": CANARY,
        "outcome": "Aborted",
        "reason": "Aborted",
        "message": "by hand",
        "at": START,
    }


def promoted(raw: dict[str, Any]) -> None:
    del raw["status"]["canary"]
    raw["status"]["stable"] = stable(hash=CANARY)


def stepped(raw: dict[str, Any]) -> None:
    raw["status"]["canary"]["step"] = 2


def retried(raw: dict[str, Any]) -> None:
    raw["status"]["observedRetry"] = raw["metadata"]["annotations"]["speculative.dev/retry"]


def held(raw: dict[str, Any]) -> None:
    raw["status"]["conditions"] = HELD


def restarted(raw: dict[str, Any]) -> None:
    raw["status"]["observedRestart"] = raw["metadata"]["annotations"]["speculative.dev/restart"]


WAITS = {
    "pause": ("pause", held, f"{CANARY} is held"),
    "abort": ("abort", aborted, "Aborted (Aborted): by hand"),
    "promote to the end": ("promote", promoted, "is the stable revision now"),
    "promote to promotion": ("promote", stepped, "went on to promotion"),
    "promote in full": ("promote --full", stepped, "went on to promotion"),
    "retry": ("retry", retried, "no longer marked as failed"),
}


@pytest.mark.parametrize(("verb", "operator", "said"), WAITS.values(), ids=WAITS.keys())
def test_wait_tells_what_came_of_it(
    api: FakeApi, run: Any, capsys: Any, verb: str, operator: Any, said: str
) -> None:
    api.put(a_resource(canary=canary(), failedRevisions=[failed()]))
    api.on_patch = operator
    name, *options = verb.split()
    assert run(name, "chat", "--wait", *options) == 0
    assert said in capsys.readouterr().out


def test_wait_tells_that_a_restart_began(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource())
    api.on_patch = restarted
    assert run("restart", "chat", "--wait") == 0
    assert f"the replacement of {STABLE} has begun" in capsys.readouterr().out


def test_wait_ends_when_nobody_acts(api: FakeApi, run: Any, capsys: Any) -> None:
    api.put(a_resource(canary=canary()))
    assert run("abort", "chat", "--wait", "--timeout", "0.01") == 5
    assert "is the operator running?" in capsys.readouterr().err


def test_a_missing_resource_is_named(run: Any, capsys: Any) -> None:
    assert run("status", "chat", "-n", "elsewhere") == 3
    expected = "error: SpeculativeDeployment chat not found in namespace elsewhere\n"
    assert capsys.readouterr().err == expected


def test_a_missing_resource_type_points_to_the_chart(api: FakeApi, run: Any, capsys: Any) -> None:
    api.crd_installed = False
    assert run("status", "chat") == 3
    assert "install the speculative-operator chart first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "said"), [(403, "no get here"), (401, "log in again"), (503, "answers 503")]
)
def test_a_refusal_of_the_api_server_is_told(
    api: FakeApi, run: Any, capsys: Any, status: int, said: str
) -> None:
    api.refuse_with = status
    assert run("status", "chat") == 1
    assert said in capsys.readouterr().err


def test_no_answer_names_the_address(tmp_path: Path, capsys: Any) -> None:
    with serving(FakeApi()) as gone:
        path = gone.kubeconfig(tmp_path)
    assert main(["status", "chat", "--kubeconfig", str(path)]) == 1
    assert f"no answer from the API server at {gone.address}" in capsys.readouterr().err


def test_a_missing_kubeconfig_is_told(tmp_path: Path, capsys: Any) -> None:
    assert main(["status", "chat", "--kubeconfig", str(tmp_path / "none")]) == 1
    assert "kubeconfig" in capsys.readouterr().err


def test_an_unknown_context_is_told(api: FakeApi, run: Any, capsys: Any) -> None:
    assert run("status", "chat", "--context", "there") == 1
    assert "there" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["status"],
        ["promote", "x", "--step", "two"],
        ["promote", "x", "--full", "--skip-step"],
        ["promote", "x", "--full", "--step", "1"],
        ["unwind", "x"],
    ],
)
def test_a_bad_command_line_ends_with_2(argv: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    assert stopped.value.code == 2
