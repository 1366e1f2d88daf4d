"""Command line of the cluster tool; see `--help`."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from types import FrameType

from . import current, kind_cluster, local
from .binaries import build_programs, gateway_controller, groups_controller
from .builder import engine_answers
from .commands import say
from .images import CLUSTER_IMAGES, build_local_images
from .model import make_model
from .other_engines import fetch_releases
from .settings import ClusterError, Settings, current_settings
from .store import load_images
from .tools import uv_program
from .vllm_pod import run_vllm_pod


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m e2e.cluster", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("up", help="bring the cluster to a Ready node; heals an interrupted start")
    down = verbs.add_parser("down", help="end it, and leave nothing behind but caches")
    down.add_argument("--purge", action="store_true", help="remove the node's images too")
    verbs.add_parser("images", help="build images whose inputs changed, and load them")
    verbs.add_parser("model", help="make the real model and the bad draft on the node")
    pod = verbs.add_parser("vllm-pod", help="run one vLLM pod by hand and ask it once")
    pod.add_argument("--keep", action="store_true", help="leave the pod running")
    verbs.add_parser("status", help="say what runs; exit status 1 where the node is not Ready")
    verbs.add_parser("engines", help="fetch the Python files of other vLLM releases")
    verbs.add_parser("plan", help="print the commands that CLUSTER=kind runs")
    verbs.add_parser("groups", help="build LeaderWorkerSet's controller; minutes the first time")
    verbs.add_parser("gateway", help="build Contour, a Gateway; minutes the first time")
    verbs.add_parser("uv", help="print the path of uv, installed where it is missing")
    verbs.add_parser("kubeconfig", help="print the path of the kubeconfig")
    return parser


def _chosen(settings: Settings) -> str:
    """Return the kind of cluster meant: kind where a Docker engine answers, else local."""
    if settings.kind != "auto":
        return settings.kind
    return "kind" if engine_answers() else "local"


def _local_images(settings: Settings) -> None:
    build_local_images(settings)
    if local.dead_parts(settings):
        raise ClusterError("images are built; to load them the cluster must be up: make cluster-up")
    load_images(settings, CLUSTER_IMAGES)


def _down(settings: Settings, *, purge: bool) -> None:
    """End what there is of ours; a cluster of the user's own is left as it is."""
    if settings.kind in ("auto", "kind"):
        kind_cluster.down(settings)
    if settings.kind in ("auto", "local"):
        local.down(settings, purge=purge)
    settings.kubeconfig.unlink(missing_ok=True)


def _change(arguments: argparse.Namespace, settings: Settings) -> None:
    chosen = _chosen(settings)
    if arguments.verb == "down":
        _down(settings, purge=arguments.purge)
    elif arguments.verb == "up":
        {"kind": kind_cluster.up, "local": local.up, "current": current.up}[chosen](settings)
    elif arguments.verb == "images":
        {"kind": kind_cluster.images, "local": _local_images, "current": current.images}[chosen](
            settings
        )
    elif arguments.verb == "model":
        make_model(settings, docker=chosen == "kind")


def _plan(settings: Settings) -> None:
    steps = (
        *kind_cluster.build_plan(settings),
        *kind_cluster.up_plan(settings),
        *kind_cluster.load_plan(settings, CLUSTER_IMAGES),
        *kind_cluster.down_plan(settings),
    )
    for step in steps:
        say(f"# {step.label}\n{shlex.join(step.argv)}")


def _look(arguments: argparse.Namespace, settings: Settings) -> int | None:
    """Carry out a verb that changes nothing of the cluster itself; None for the others."""
    if arguments.verb == "kubeconfig":
        say(str(settings.kubeconfig))
    elif arguments.verb == "plan":
        _plan(settings)
    elif arguments.verb == "engines":
        fetch_releases(settings)
    elif arguments.verb == "groups":
        build_programs(settings, (groups_controller(),))
    elif arguments.verb == "gateway":
        build_programs(settings, (gateway_controller(),))
    elif arguments.verb == "uv":
        with redirect_stdout(sys.stderr):
            program = uv_program(settings)
        say(str(program))
    elif arguments.verb == "vllm-pod":
        run_vllm_pod(settings, keep=arguments.keep)
    elif arguments.verb == "status":
        return 0 if local.status(settings) else 1
    else:
        return None
    return 0


def _run(arguments: argparse.Namespace, settings: Settings) -> int:
    looked = _look(arguments, settings)
    if looked is not None:
        return looked
    with local.alone(settings):
        _change(arguments, settings)
    return 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    """End on TERM as on Ctrl-C, so that builds and imports under way are ended too."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _run(arguments, current_settings())
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the next start clears what is half done", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
