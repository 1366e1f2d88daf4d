"""The command line: every verb with its arguments."""

import argparse
from collections.abc import Sequence
from typing import Any


def parse_command_line(argv: Sequence[str] | None) -> argparse.Namespace:
    """The arguments; ends the process with 2 when they make no sense."""
    known = parser()
    arguments = known.parse_args(argv)
    if arguments.verb == "promote" and arguments.full and arguments.step is not None:
        known.error("promote --full skips every step that is left: leave --step out")
    return arguments


def parser() -> argparse.ArgumentParser:
    """The whole command line."""
    place = _place()
    common = argparse.ArgumentParser(add_help=False, parents=[place])
    common.add_argument("name", help="name of the SpeculativeDeployment")
    found = argparse.ArgumentParser(
        prog="kubectl speculative", description="Look at and steer rollouts."
    )
    verbs = found.add_subparsers(dest="verb", required=True, metavar="VERB")
    _looking(verbs, place, common)
    _steering(verbs, common)
    _history(verbs, common)
    completion = verbs.add_parser("completion", help="print a shell's completion script")
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
    lint = verbs.add_parser("lint", help="check manifests without a cluster")
    lint.add_argument(
        "files", nargs="+", metavar="FILE", help="YAML or JSON, or a folder; - is standard input"
    )
    lint.add_argument("-o", "--output", choices=["text", "json", "sarif"], default="text")
    lint.add_argument(
        "--with-models",
        action="store_true",
        help="read the models' small files too (file:// here, hf:// from the hub, s3:// from the "
        "bucket; never weights)",
    )
    lint.add_argument(
        "--gpu-memory-gib",
        type=float,
        metavar="N",
        help="with --with-models: memory of one GPU, for the estimate",
    )
    return found


def _place() -> argparse.ArgumentParser:
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("-n", "--namespace", help="default: the context's namespace")
    place.add_argument("--context", help="context of the kubeconfig")
    place.add_argument("--kubeconfig", help="default: KUBECONFIG, then ~/.kube/config")
    return place


def _looking(verbs: Any, place: argparse.ArgumentParser, common: argparse.ArgumentParser) -> None:
    status = verbs.add_parser("status", parents=[common], help="the state on one screen")
    status.add_argument("-w", "--watch", action="store_true", help="go on until interrupted")
    status.add_argument(
        "--all-pods", action="store_true", help="show and ask every pod, not the first few"
    )
    status.add_argument("-o", "--output", choices=["text", "json", "yaml"], default="text")
    every = verbs.add_parser("list", parents=[place], help="all resources, one line each")
    every.add_argument("-A", "--all-namespaces", action="store_true")
    every.add_argument("-o", "--output", choices=["text", "json"], default="text")
    explain = verbs.add_parser(
        "explain-verdict", parents=[common], help="the evidence of the last trial"
    )
    explain.add_argument("--plot", metavar="FILE", help="draw it as a PNG, too (needs matplotlib)")
    explain.add_argument("-o", "--output", choices=["text", "json"], default="text")


def _steering(verbs: Any, common: argparse.ArgumentParser) -> None:
    waits = argparse.ArgumentParser(add_help=False)
    waits.add_argument("--wait", action="store_true", help="until the operator has acted on it")
    waits.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="of --wait; default 60"
    )
    meant = argparse.ArgumentParser(add_help=False)
    meant.add_argument("--hash", help="only if it is this revision; whatever is on trial if absent")
    every = [common, waits, meant]
    promote = verbs.add_parser(
        "promote", parents=every, help="go past the pause that the canary is in"
    )
    promote.add_argument(
        "--step", type=int, help="only if the canary is in this step, counted from 1"
    )
    way = promote.add_mutually_exclusive_group()
    way.add_argument(
        "--skip-step", action="store_true", help="go past the present step, whichever it is"
    )
    way.add_argument("--full", action="store_true", help="skip all steps that are left")
    verbs.add_parser("pause", parents=every, help="hold the canary, or the guard, where it is")
    verbs.add_parser("resume", parents=every, help="let a held rollout go on")
    verbs.add_parser("abort", parents=every, help="roll the canary back")
    restart = verbs.add_parser(
        "restart", parents=every, help="replace stable's pods one at a time, drained"
    )
    restart.add_argument(
        "--rerender", action="store_true", help="with the pod template of today's operator"
    )
    recover = verbs.add_parser(
        "recover", parents=every, help="end what drift did to stable, and judge it anew"
    )
    recover.add_argument(
        "--rebaseline", action="store_true", help="against a new baseline: this is normal now"
    )
    retry = verbs.add_parser(
        "retry", parents=[common, waits], help="let a failed revision be tried again"
    )
    retry.add_argument("--hash", help="which one; needed when several have failed")


def _history(verbs: Any, common: argparse.ArgumentParser) -> None:
    history = verbs.add_parser("history", parents=[common], help="the stored revisions")
    history.add_argument("--revision", help="the words of one: its number or hash")
    history.add_argument("-o", "--output", choices=["text", "json"], default="text")
    diff = verbs.add_parser("diff", parents=[common], help="what two revisions say differently")
    diff.add_argument("old", help="number or hash, or `spec` for what the resource asks for")
    diff.add_argument("new", help="the same")
    undo = verbs.add_parser("undo", parents=[common], help="ask for an earlier revision again")
    undo.add_argument("--to", help="number or hash; the one before when absent")


def _seconds(raw: str) -> float:
    value = float(raw)
    if not 0 < value < 86_400:
        raise argparse.ArgumentTypeError(f"{raw} is not between 0 and 86400 seconds")
    return value
