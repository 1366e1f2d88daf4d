"""A pod's place in a group, and what its engine is told."""

from typing import Any

import pytest
from tests.worker.a_worker import a_config

from speculative_worker.arguments import ENGINE_MODULE, FOLLOWER_MODULE, engine_command
from speculative_worker.errors import WorkerFailure
from speculative_worker.group import Node, node_of
from speculative_worker.settings import SettingsError, settings_from

LEADER = "chat-6f9d-g-0.chat-6f9d-g.llm"
GROUP = {"LWS_LEADER_ADDRESS": LEADER, "LWS_WORKER_INDEX": "1", "VLLM_HOST_IP": "10.0.0.7"}


def command(node: Node | None, **changes: Any) -> list[str]:
    config = a_config(simulation=None, **changes)
    return engine_command(config, target_path="/m", draft_path=None, port=8000, node=node)


def values(argv: list[str], *flags: str) -> tuple[str, ...]:
    return tuple(argv[argv.index(flag) + 1] for flag in flags)


PLACE = ("--nnodes", "--node-rank", "--master-addr", "--master-port")


def test_one_pod_is_told_nothing_of_nodes() -> None:
    assert node_of(None, GROUP) is None
    assert node_of(1, GROUP) is None
    argv = command(None)
    assert argv[2] == ENGINE_MODULE
    assert not {*PLACE, "--headless"} & {*argv}


def test_the_leader_serves_and_is_found_at_its_own_address() -> None:
    argv = command(Node(2, 0, LEADER, "10.0.0.6"), nodes=2, tensorParallelSize=2)
    assert argv[2] == ENGINE_MODULE
    assert values(argv, *PLACE) == ("2", "0", "10.0.0.6", "29501")
    assert "--headless" not in argv


def test_a_follower_has_no_api_and_is_told_the_same_otherwise() -> None:
    leader = command(Node(2, 0, LEADER, "10.0.0.6"), nodes=2, tensorParallelSize=2)
    follower = command(Node(2, 1, LEADER, "10.0.0.7"), nodes=2, tensorParallelSize=2)
    assert follower[2:5] == [FOLLOWER_MODULE, "serve", "--headless"]
    assert values(follower, *PLACE) == ("2", "1", LEADER, "29501")
    assert follower[follower.index("--model") :] == leader[leader.index("--model") :]


def test_a_leader_without_an_address_is_found_by_name() -> None:
    assert Node(2, 0, LEADER).meeting_place == LEADER


@pytest.mark.parametrize("rank", ["", "2", "-1", "x", "²"])
def test_a_pod_without_a_place_says_who_gives_one(rank: str) -> None:
    with pytest.raises(ValueError, match="webhook"):
        node_of(2, GROUP | {"LWS_WORKER_INDEX": rank})


def test_a_worker_outside_of_its_group_ends_with_a_reason() -> None:
    text = a_config(nodes=2).model_dump_json(by_alias=True, exclude_none=True)
    with pytest.raises(SettingsError, match="LWS_LEADER_ADDRESS"):
        settings_from({"SPECULATIVE_WORKER_CONFIG": text, "LWS_WORKER_INDEX": "0"})
    assert settings_from({"SPECULATIVE_WORKER_CONFIG": text} | GROUP).node == Node(
        2, 1, LEADER, "10.0.0.7"
    )


@pytest.mark.parametrize("version", ["0.6.6", "0.9.2", "0.11.2"])
def test_an_engine_that_needs_ray_is_refused(version: str) -> None:
    node = Node(2, 0, LEADER)
    with pytest.raises(WorkerFailure, match=r"target\.nodesPerReplica 2.*Ray"):
        command(node, nodes=2, engineVersion=version, tensorParallelSize=2)
    assert command(node, nodes=2, engineVersion="0.12.0", tensorParallelSize=2)
