"""Everything before the main job: cluster, images, model, chart."""

import asyncio
import sys
from pathlib import Path

from .errors import DemoError
from .kube import Kube
from .terminal import Display

SETUP_SECONDS = 3600.0
"""Longest single set-up command; from nothing, vLLM's image alone takes several minutes."""
RELEASE = "speculative-operator"
OPERATOR_NAMESPACE = "speculative-system"


async def cluster(display: Display, repository: Path) -> None:
    """Brings up the cluster with images and model; quick where all is there.

    Raises:
        DemoError: a part failed; what it said is on the screen.
    """
    for verb in ("up", "images", "model"):
        command = [sys.executable, "-m", "e2e.cluster", verb]
        child = await asyncio.create_subprocess_exec(*command, cwd=repository)
        try:
            async with asyncio.timeout(SETUP_SECONDS):
                status = await child.wait()
        except BaseException:
            # It ends its own children, and the next start heals what is half done.
            if child.returncode is None:
                child.terminate()
                await child.wait()
            raise
        if status != 0:
            raise DemoError(f"python -m e2e.cluster {verb}: exit status {status}, see above")


async def kubeconfig(repository: Path) -> Path:
    """The kubeconfig of the cluster in use.

    Raises:
        DemoError: there is none.
    """
    child = await asyncio.create_subprocess_exec(
        *[sys.executable, "-m", "e2e.cluster", "kubeconfig"],
        cwd=repository,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    path = Path(out.decode().strip())
    if child.returncode != 0 or not await asyncio.to_thread(path.is_file):
        raise DemoError(f"no kubeconfig ({path}): make cluster-up")
    return path


async def chart(kube: Kube, repository: Path, values: list[str]) -> str:
    """Installs or upgrades the chart and waits for the operator; returns helm's first lines.

    Raises:
        DemoError: helm or the operator's start failed.
    """
    said = await kube.run(
        kube.program("helm"),
        *["upgrade", "--install", RELEASE, str(repository / "charts" / RELEASE)],
        *["--namespace", OPERATOR_NAMESPACE, "--create-namespace"],
        # A CRD that was applied by hand, or by a test, is taken over.
        "--take-ownership",
        *[part for value in values for part in ("--set", value)],
        seconds=120,
    )
    # The local images keep their tag, so a new one needs a new pod to be used.
    deployment = f"deployment/{RELEASE}"
    await kube.kubectl("rollout", "restart", "-n", OPERATOR_NAMESPACE, deployment)
    await kube.kubectl(
        *["rollout", "status", "-n", OPERATOR_NAMESPACE, deployment, "--timeout=180s"],
        seconds=200,
    )
    return said.strip().splitlines()[0] if said.strip() else ""
