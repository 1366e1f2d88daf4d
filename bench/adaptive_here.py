"""`python -m bench.adaptive_here [OPTIONS]`: `bench.adaptive` where vLLM is.

That is this machine's own `python3` where it has vLLM (a GPU machine), else a
container of the local cluster's vLLM image with the local cluster's models, at
the lowest priority. Options are those of `bench.adaptive`; nothing is built.
"""

import os
import subprocess
import sys
from pathlib import Path

from e2e.cluster.builder import buildah, image_exists
from e2e.cluster.commands import output_of, succeeds
from e2e.cluster.images import VLLM_BASE_IMAGE
from e2e.cluster.settings import Settings, current_settings

_CONTAINER = "speculative-bench-adaptive"
_REPOSITORY = Path(__file__).parents[1]
_HAS_VLLM = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"


def main() -> int:
    """The command; the bench's exit code."""
    options = sys.argv[1:]
    if succeeds(["python3", "-c", _HAS_VLLM]):
        command = ["python3", "bench/adaptive.py", "--clock", "wall", *options]
        return subprocess.run(command, cwd=_REPOSITORY, check=False).returncode  # noqa: S603
    settings = current_settings()
    if not image_exists(VLLM_BASE_IMAGE, prefix=buildah(settings)):
        print("no python3 with vLLM, and no local image of it: `make model` builds one")
        return 2
    return _in_a_container(settings, options)


def _in_a_container(settings: Settings, options: list[str]) -> int:
    tool = buildah(settings)
    succeeds([*tool, "rm", _CONTAINER])
    output_of([*tool, "from", "--name", _CONTAINER, "--pull-never", VLLM_BASE_IMAGE])
    (_REPOSITORY / "build").mkdir(exist_ok=True)
    # One thread on one core: the processor's time is then that of the work, without waiting.
    environment = {"OMP_WAIT_POLICY": "passive", "VLLM_CPU_OMP_THREADS_BIND": "0"}
    try:
        command = [
            *("nice", "-n", "19", *tool, "run"),
            *("--volume", f"{_REPOSITORY}:/repository", "--workingdir", "/repository"),
            *("--volume", f"{settings.models}:/bench-models:ro"),
            *(word for name, value in environment.items() for word in ("--env", f"{name}={value}")),
            *(_CONTAINER, "--", "python3", "bench/adaptive.py", "--models", "/bench-models"),
        ]
        run = subprocess.run([*command, *options], env={**os.environ}, check=False)  # noqa: S603
        return run.returncode
    finally:
        output_of([*tool, "rm", _CONTAINER])


if __name__ == "__main__":
    sys.exit(main())
