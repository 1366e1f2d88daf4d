"""Command line of the cluster tool; see `--help`."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from types import FrameType

from . import local
from .commands import say
from .images import (
    GATEWAY_IMAGE,
    OPERATOR_IMAGE,
    SIMULATE_IMAGE,
    WORKER_IMAGE,
    build_local_images,
)
from .model import make_model
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
    verbs.add_parser("uv", help="print the path of uv, installed where it is missing")
    verbs.add_parser("kubeconfig", help="print the path of the kubeconfig")
    return parser


def _images(settings: Settings) -> None:
    build_local_images(settings)
    if local.dead_parts(settings):
        raise ClusterError("images are built; to load them the cluster must be up: make cluster-up")
    load_images(settings, (OPERATOR_IMAGE, GATEWAY_IMAGE, SIMULATE_IMAGE, WORKER_IMAGE))


def _local(arguments: argparse.Namespace, settings: Settings) -> int:
    if arguments.verb == "kubeconfig":
        say(str(settings.kubeconfig))
        return 0
    if arguments.verb == "uv":
        with redirect_stdout(sys.stderr):
            program = uv_program(settings)
        say(str(program))
        return 0
    if arguments.verb == "vllm-pod":
        run_vllm_pod(settings, keep=arguments.keep)
        return 0
    if arguments.verb == "status":
        return 0 if local.status(settings) else 1
    with local.alone(settings):
        if arguments.verb == "up":
            local.up(settings)
        elif arguments.verb == "down":
            local.down(settings, purge=arguments.purge)
        elif arguments.verb == "images":
            _images(settings)
        elif arguments.verb == "model":
            make_model(settings)
    return 0


def _interrupted(number: int, frame: FrameType | None) -> None:
    """End on TERM as on Ctrl-C, so that builds and imports under way are ended too."""
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit status."""
    arguments = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupted)
    try:
        return _local(arguments, current_settings())
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the next start clears what is half done", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
