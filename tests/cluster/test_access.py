"""How the operator finds the API server in a pod, without a library for it."""

import shutil
import subprocess
import sys
from pathlib import Path

import certifi
import pytest

from speculative_operator.cluster.access import TOKEN_SECONDS, in_pod
from speculative_operator.errors import Unavailable

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the kubelet mounts."""
    shutil.copy(certifi.where(), tmp_path / "ca.crt")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


@pytest.mark.parametrize(
    "host,server",
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
    ids=["IPv4", "IPv6"],
)
def test_pod_names_the_server(folder: Path, host: str, server: str) -> None:
    found = in_pod(POD | {"KUBERNETES_SERVICE_HOST": host}, folder=folder)
    assert found is not None
    assert (found.server, found.tls is not None) == (server, True)


@pytest.mark.parametrize(
    "environment", [{}, POD | {"KUBERNETES_SERVICE_PORT": ""}], ids=["no variables", "no port"]
)
def test_outside_of_a_pod_there_is_no_such_access(
    folder: Path, environment: dict[str, str]
) -> None:
    assert in_pod(environment, folder=folder) is None


def test_pod_without_a_token_has_no_such_access(tmp_path: Path) -> None:
    assert in_pod(POD, folder=tmp_path) is None


async def test_token_is_read_again_by_a_clock_that_does_not_jump(folder: Path) -> None:
    now = 100.0
    found = in_pod(POD, folder=folder, clock=lambda: now)
    assert found is not None
    assert await found.authorization() == "Bearer first"
    (folder / "token").write_text("second")
    now += TOKEN_SECONDS - 1
    assert await found.authorization() == "Bearer first"
    now += 1
    assert await found.authorization() == "Bearer second"


async def test_token_that_vanished_is_an_error_that_names_it(folder: Path) -> None:
    found = in_pod(POD, folder=folder)
    assert found is not None
    (folder / "token").unlink()
    with pytest.raises(Unavailable, match="token"):
        await found.authorization()


def test_unreadable_authority_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "ca.crt").write_text("garbage")
    with pytest.raises(Unavailable, match=r"ca\.crt"):
        in_pod(POD, folder=folder)


@pytest.mark.slow
def test_program_starts_without_the_kubernetes_library() -> None:
    """It takes half of the time to start, and a restart leaves nobody at work for so long."""
    code = (
        "import sys, speculative_operator.__main__; "
        "print(sorted({'kubernetes', 'requests', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
