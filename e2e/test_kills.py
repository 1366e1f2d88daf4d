"""kill -9 at every stage: the rollout goes on or stands still, never backwards."""

import itertools
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from e2e.dsl import Trial, a_trial, load_on, wait_for
from e2e.kubectl import KubectlError
from e2e.pod_processes import kill, pids_of

pytestmark = pytest.mark.cluster

ORDER = ["", "CanaryStarting", "CanaryWeighted", "Guarding", "RemovingRevision", "Complete"]


@contextmanager
def watched(trial: Trial) -> Iterator[list[tuple[str, int, str]]]:
    """Everything status said meanwhile: reason of Progressing, step, stable's hash."""
    seen: list[tuple[str, int, str]] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.3):
            try:
                status = trial.status
            except KubectlError:
                continue
            reason = next(
                (c["reason"] for c in status.get("conditions", []) if c["type"] == "Progressing"),
                "",
            )
            step = status.get("canary", {}).get("step", -1)
            now = (reason, step, status.get("stable", {}).get("hash", ""))
            if not seen or seen[-1] != now:
                seen.append(now)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def never_backwards(seen: list[tuple[str, int, str]]) -> None:
    """Reasons and steps only go forward, and stable changes at most once."""
    reasons = [ORDER.index(reason) for reason, _, _ in seen if reason in ORDER[1:-1]]
    assert reasons == sorted(reasons), seen
    steps = [step for reason, step, _ in seen if reason.startswith("Canary")]
    assert steps == sorted(steps), seen
    stables = [stable for _, _, stable in seen]
    assert sum(a != b for a, b in itertools.pairwise(stables)) <= 1, seen


def test_operator_killed_at_each_stage_of_a_promotion() -> None:
    with a_trial("killed") as trial:
        trial.operator.kill()
        trial.apply(k=4)
        trial.operator.start()
        trial.wait_available()
        trial.operator.kill()
        with load_on(trial.url(), trial.namespace) as report:
            trial.operator.start()
            with watched(trial) as seen:
                trial.apply(k=6)
                for reason in ("CanaryStarting", "CanaryWeighted", "Guarding"):
                    trial.wait_progressing(reason)
                    trial.operator.kill()
                    trial.operator.start()
                trial.wait_progressing("Complete")
                wait_for("one revision runs", lambda: len(trial.revisions_running()) == 1)
            never_backwards(seen)
        assert (report()["failed"], report()["cut"]) == (0, 0)
        assert report()["ok"] > 30


def test_operator_killed_after_every_few_writes() -> None:
    program = (sys.executable, "-m", "e2e.crashing_operator")
    with a_trial("crashing", program=program, extra={"CRASH_AFTER_WRITES": "5"}) as trial:
        with crash_loop(trial) as lives:
            trial.apply(k=4)
            trial.wait_available(240)
            with load_on(trial.url(), trial.namespace) as report, watched(trial) as seen:
                trial.apply(k=6)
                trial.wait_progressing("Guarding", 300)
                trial.wait_progressing("Complete", 300)
                wait_for("one revision runs", lambda: len(trial.revisions_running()) == 1, 120)
        never_backwards(seen)
        assert lives[0] > 3
        assert (report()["failed"], report()["cut"]) == (0, 0)


@contextmanager
def crash_loop(trial: Trial) -> Iterator[list[int]]:
    """Starts the operator again whenever it has died; counts its lives."""
    lives, over = [1], threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            process = trial.operator.process
            if process is not None and process.poll() is not None:
                trial.operator.start()
                lives[0] += 1

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def test_agent_killed_disturbs_nobody_and_envoy_comes_back_in_a_second() -> None:
    with a_trial("gateway") as trial:
        trial.apply(k=4)
        trial.wait_available()
        gateway = next(iter(trial.pods("gateway")))
        with load_on(trial.url(), trial.namespace) as report:
            kill(gateway, "speculative_gateway", "agent")
            wait_for("the agent runs again", lambda: pids_of(gateway, "speculative_gateway agent"))
            # the operator still gets a change through the agent that adopted a running Envoy
            trial.apply(k=6)
            trial.wait_progressing("Guarding")
        assert (report()["failed"], report()["cut"]) == (0, 0)
        trial.wait_progressing("Complete")
        envoy = kill(gateway, "envoy", "--config-path")
        wait_for(
            "another Envoy runs",
            lambda: [pid for pid in pids_of(gateway, "envoy", "--config-path") if pid != envoy],
            5,
        )
        wait_for("it answers", lambda: models_answer(trial), 5)
        containers = trial.pods("gateway")[gateway]["status"]["containerStatuses"]
        assert {c["name"]: c["restartCount"] for c in containers}["envoy"] == 0


def models_answer(trial: Trial) -> Any:
    with urllib.request.urlopen(f"{trial.url()}/v1/models", timeout=1) as answer:
        return answer.status == 200
