"""Where vLLM is on this machine: its own `python3` (a GPU machine), or the local cluster's image.

For benchmarks of real vLLM; nothing is built, and what runs in the image has the
lowest priority.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from e2e.cluster.builder import buildah, image_exists
from e2e.cluster.commands import output_of, succeeds
from e2e.cluster.images import VLLM_BASE_IMAGE
from e2e.cluster.settings import current_settings

REPOSITORY = Path(__file__).parents[1]
_HAS_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


def has_vllm() -> bool:
    """Whether this machine's own `python3` has it."""
    return succeeds(["python3", "-c", _HAS_VLLM])


def no_image() -> str | None:
    """What to do, where there is no image of vLLM here."""
    if image_exists(VLLM_BASE_IMAGE, prefix=buildah(current_settings())):
        return None
    return "no python3 with vLLM, and no local image of it: `make model` builds one"


def in_a_container(name: str, words: Sequence[str]) -> int:
    """Runs `python3 WORDS` in the image, with this repository and the local cluster's models
    (/bench-models); its exit code."""
    settings = current_settings()
    tool = buildah(settings)
    succeeds([*tool, "rm", name])
    output_of([*tool, "from", "--name", name, "--pull-never", VLLM_BASE_IMAGE])
    (REPOSITORY / "build").mkdir(exist_ok=True)
    # One thread on one core: the processor's time is then that of the work, without waiting.
    environment = {"OMP_WAIT_POLICY": "passive", "VLLM_CPU_OMP_THREADS_BIND": "0"}
    try:
        command = [
            *("nice", "-n", "19", *tool, "run"),
            *("--volume", f"{REPOSITORY}:/repository", "--workingdir", "/repository"),
            *("--volume", f"{settings.models}:/bench-models:ro"),
            *(word for key, value in environment.items() for word in ("--env", f"{key}={value}")),
            *(name, "--", "python3", *words),
        ]
        run = subprocess.run(command, env={**os.environ}, check=False)  # noqa: S603
        return run.returncode
    finally:
        output_of([*tool, "rm", name])
