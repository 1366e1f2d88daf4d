"""Settings of the cluster tool come from the environment and are checked at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.cluster.settings import ClusterError, settings_from


def test_defaults() -> None:
    settings = settings_from({"HOME": "/home/sre"})
    assert settings.home == Path("/home/sre/.cache/speculative-operator")
    assert (settings.kind, settings.kube_context, settings.api_port) == ("auto", "", 6443)


def test_everything_of_the_cluster_lies_in_the_folder_named() -> None:
    settings = settings_from({"HOME": "/root", "SPECULATIVE_HOME": "/data/spec"})
    for path in (settings.binaries, settings.containerd_socket, settings.models, settings.logs):
        assert path.is_relative_to("/data/spec")


@pytest.mark.parametrize(
    "environment, message",
    [
        ({"CLUSTER": "minikube"}, "CLUSTER=minikube is unknown: use auto, local, kind or current"),
        ({"API_PORT": "http"}, "API_PORT=http is not a port number"),
        ({"API_PORT": "70000"}, "API_PORT=70000 is not a port number"),
        ({"SPECULATIVE_HOME": "cache"}, "SPECULATIVE_HOME=cache must be an absolute path"),
        ({"SPECULATIVE_HOME": "/" + "x" * 90}, "longer than 55 characters"),
    ],
    ids=["kind", "port word", "port range", "relative", "long"],
)
def test_a_wrong_value_is_refused_with_what_to_do(
    environment: dict[str, str], message: str
) -> None:
    with pytest.raises(ClusterError, match=message):
        settings_from({"HOME": "/root"} | environment)
