"""A cluster with kind, where a Docker engine answers.

What would run is a plan, made by pure functions and printed by
`python3 -m e2e.cluster plan`; `carry_out` runs it step by step.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .binaries import Program, build_programs, helm
from .builder import build_command, engine_answers
from .commands import output_of, run_logged, say, succeeds
from .images import CLUSTER_IMAGES, build_where_needed, project_images, vllm_base_image
from .prerequisites import require_programs
from .settings import GPU_COUNT, ClusterError, Settings

NAME = "speculative"
NODE = f"{NAME}-control-plane"
BASE_IMAGE = "python:3.11-slim"


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a plan, with what it is for."""

    label: str
    argv: tuple[str, ...]


def cluster_config(settings: Settings) -> dict[str, object]:
    """Return kind's configuration: one node with our labels and the models mounted."""
    models = str(settings.models)
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": NAME,
        "nodes": [
            {
                "role": "control-plane",
                "labels": {"accelerator": "nvidia-a100", "inference-type": "speculative"},
                "extraMounts": [
                    {"hostPath": models, "containerPath": models, "readOnly": True},
                ],
            }
        ],
    }


def kind_program(settings: Settings) -> str:
    """Return kind: the one on PATH, else the one we build."""
    return shutil.which("kind") or str(settings.binaries / "kind")


def up_plan(settings: Settings) -> list[Step]:
    """Return what makes the cluster."""
    kubeconfig = str(settings.kubeconfig)
    patch = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(GPU_COUNT)}]
    create = [kind_program(settings), "create", "cluster", "--wait", "180s"]
    create += ["--config", str(_config_file(settings)), "--kubeconfig", kubeconfig]
    gpus = ["kubectl", "--kubeconfig", kubeconfig, "patch", "node", NODE]
    gpus += ["--subresource=status", "--type=json", "-p", json.dumps(patch)]
    return [Step("create the kind cluster", tuple(create)), Step("add GPUs", tuple(gpus))]


def build_plan(settings: Settings) -> list[Step]:
    """Return the builds, as docker commands."""
    wanted = (
        vllm_base_image(BASE_IMAGE),
        *project_images(settings.repository, base=BASE_IMAGE),
    )
    secrets = settings.images / "secrets"
    return [
        Step(
            f"build {image.build.image}",
            tuple(build_command(image.build, prefix=["docker"], secrets=secrets)),
        )
        for image in wanted
    ]


def load_plan(settings: Settings, images: Sequence[str]) -> list[Step]:
    """Return what brings images into the cluster's node."""
    archive = str(settings.images / "kind.tar")
    load = (kind_program(settings), "load", "image-archive", archive, "--name", NAME)
    return [
        Step("save images", ("docker", "save", "--output", archive, *images)),
        Step("load images into kind", load),
    ]


def down_plan(settings: Settings) -> list[Step]:
    """Return what removes the cluster."""
    argv = (kind_program(settings), "delete", "cluster", "--name", NAME)
    return [Step("delete the kind cluster", (*argv, "--kubeconfig", str(settings.kubeconfig)))]


def _config_file(settings: Settings) -> Path:
    return settings.home / "kind.json"


def carry_out(settings: Settings, steps: Sequence[Step]) -> None:
    """Run the steps of a plan.

    Raises:
        ClusterError: a step failed; with the end of its log.
    """
    for step in steps:
        name = step.label.replace(" ", "-").replace("/", "-")
        run_logged(step.argv, label=step.label, log=settings.logs / f"kind-{name}.log")


def _require_engine() -> None:
    if not engine_answers():
        raise ClusterError("CLUSTER=kind needs a Docker engine; none answers. Try CLUSTER=local")


def exists(settings: Settings) -> bool:
    """Whether kind has our cluster."""
    if not engine_answers() or not Path(kind_program(settings)).exists():
        return False
    return NAME in output_of([kind_program(settings), "get", "clusters"]).split()


def up(settings: Settings) -> None:
    """Make the cluster, or use the one that is there.

    Raises:
        ClusterError: no Docker engine answers, or a step failed.
    """
    _require_engine()
    require_programs(["go", "kubectl"])
    module = Path(__file__).parent / "kind"
    build_programs(settings, (helm(), Program("kind", "sigs.k8s.io/kind", module)))
    ready = ["kubectl", "--kubeconfig", str(settings.kubeconfig), "get", "--raw", "/readyz"]
    if exists(settings) and succeeds(ready):
        say(f"cluster is up; KUBECONFIG={settings.kubeconfig}")
        return
    settings.models.mkdir(parents=True, exist_ok=True)
    _config_file(settings).write_text(json.dumps(cluster_config(settings)), encoding="utf-8")
    carry_out(settings, down_plan(settings))
    carry_out(settings, up_plan(settings))
    say(f"cluster is up; KUBECONFIG={settings.kubeconfig}")


def images(settings: Settings) -> None:
    """Build what changed, and load it.

    Raises:
        ClusterError: there is no cluster, or a step failed.
    """
    _require_engine()
    wanted = (vllm_base_image(BASE_IMAGE), *project_images(settings.repository, base=BASE_IMAGE))
    rebuilt = build_where_needed(settings, wanted, prefix=["docker"])
    if not exists(settings):
        raise ClusterError("images are built; to load them the cluster must be up: make cluster-up")
    present = output_of(["docker", "exec", NODE, "crictl", "images"])
    missing = [
        name
        for name in CLUSTER_IMAGES
        if name in rebuilt or name.removesuffix(":dev") not in present
    ]
    if missing:
        carry_out(settings, load_plan(settings, missing))
        (settings.images / "kind.tar").unlink()
    say(f"images loaded: {', '.join(missing) or 'none, all there'}")


def down(settings: Settings) -> None:
    """Remove the cluster where there is one."""
    if exists(settings):
        carry_out(settings, down_plan(settings))
