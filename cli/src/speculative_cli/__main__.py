"""`kubectl speculative`: reads the command line, talks to the API server, prints.

Exit codes: 0 done; 1 no usable cluster, or refused by it; 2 bad command line;
3 not found; 4 the request makes no sense now; 5 asked, but not seen in time;
6 lint found errors.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from . import requests, screen
from .errors import CliError, TimedOut, Unreachable
from .resource import Resource, parse

if TYPE_CHECKING:
    from .cluster import Cluster

LINT_ERRORS = 6
"""Exit code."""
_PLAIN = {"abort": requests.abort, "pause": requests.pause, "resume": requests.resume}
LOOK_EVERY_SECONDS = 1.0
"""Time between two looks of --watch and --wait."""


def _parser() -> argparse.ArgumentParser:
    place = argparse.ArgumentParser(add_help=False)
    place.add_argument("-n", "--namespace", help="default: the context's namespace")
    place.add_argument("--context", help="context of the kubeconfig")
    place.add_argument("--kubeconfig", help="default: KUBECONFIG, then ~/.kube/config")
    common = argparse.ArgumentParser(add_help=False, parents=[place])
    common.add_argument("name", help="name of the SpeculativeDeployment")
    waits = argparse.ArgumentParser(add_help=False)
    waits.add_argument("--wait", action="store_true", help="until the operator has acted on it")
    waits.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="of --wait; default 60"
    )
    parser = argparse.ArgumentParser(
        prog="kubectl speculative", description="Look at and steer rollouts."
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    status = verbs.add_parser("status", parents=[common], help="the state on one screen")
    status.add_argument("-w", "--watch", action="store_true", help="go on until interrupted")
    status.add_argument("-o", "--output", choices=["text", "json"], default="text")
    promote = verbs.add_parser(
        "promote", parents=[common, waits], help="go past the pause that the canary is in"
    )
    promote.add_argument(
        "--step", type=int, help="only if the canary is in this step, counted from 1"
    )
    verbs.add_parser("abort", parents=[common, waits], help="roll the canary back")
    retry = verbs.add_parser(
        "retry", parents=[common, waits], help="let a failed revision be tried again"
    )
    retry.add_argument("--hash", help="which one; needed when several have failed")
    verbs.add_parser(
        "pause", parents=[common, waits], help="hold the canary, or the guard, where it is"
    )
    verbs.add_parser("resume", parents=[common, waits], help="let a held rollout go on")
    _history_verbs(verbs, place, common)
    lint = verbs.add_parser("lint", help="check manifests without a cluster")
    lint.add_argument("files", nargs="+", metavar="FILE", help="YAML or JSON; - is standard input")
    lint.add_argument("-o", "--output", choices=["text", "json"], default="text")
    return parser


def _history_verbs(
    verbs: Any, place: argparse.ArgumentParser, common: argparse.ArgumentParser
) -> None:
    every = verbs.add_parser("list", parents=[place], help="all resources, one line each")
    every.add_argument("-A", "--all-namespaces", action="store_true")
    every.add_argument("-o", "--output", choices=["text", "json"], default="text")
    explain = verbs.add_parser(
        "explain-verdict", parents=[common], help="the evidence of the last trial"
    )
    explain.add_argument("-o", "--output", choices=["text", "json"], default="text")
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


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.verb == "lint":
        return _lint(arguments.files, output=arguments.output)
    # The client takes two seconds to import: --help and a wrong flag need not wait for it.
    from .cluster import connect

    try:
        with connect(
            kubeconfig=arguments.kubeconfig,
            context=arguments.context,
            namespace=arguments.namespace,
        ) as cluster:
            return _run(arguments, cluster)
    except CliError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace, cluster: "Cluster") -> int:
    from . import commands

    def read() -> Resource:
        return parse(cluster.read(arguments.name))

    match arguments.verb:
        case "status":
            return _status(read, watch=arguments.watch, output=arguments.output)
        case "list":
            everywhere = arguments.all_namespaces
            commands.show_all(cluster, everywhere=everywhere, output=arguments.output)
        case "history":
            wanted, output = arguments.revision, arguments.output
            commands.show_history(cluster, read(), revision=wanted, output=output)
        case "diff":
            commands.show_difference(cluster, read(), old=arguments.old, new=arguments.new)
        case "explain-verdict":
            commands.explain(cluster, read(), output=arguments.output)
        case "undo":
            commands.go_back(cluster, read(), to=arguments.to)
        case _:
            _ask(arguments, cluster, read)
    return 0


def _ask(arguments: argparse.Namespace, cluster: "Cluster", read: Callable[[], Resource]) -> None:
    request = _request(arguments, read())
    cluster.annotate(arguments.name, annotation=request.annotation, value=request.value)
    print(f"asked: {request.sentence}", flush=True)
    if arguments.wait:
        print(_outcome(request, read, seconds=arguments.timeout))


def _request(arguments: argparse.Namespace, resource: Resource) -> requests.Request:
    if arguments.verb == "promote":
        return requests.promote(resource, step=arguments.step)
    if arguments.verb in _PLAIN:
        return _PLAIN[arguments.verb](resource)
    return requests.retry(resource, revision=arguments.hash, now=datetime.now(UTC))


def _outcome(request: requests.Request, read: Callable[[], Resource], *, seconds: float) -> str:
    deadline = time.monotonic() + seconds
    while True:
        found = requests.outcome(request, read())
        if found is not None:
            return found
        if time.monotonic() >= deadline:
            raise TimedOut(
                f"the operator has not acted on it for {seconds:.0f} s; the request stays: "
                "is the operator running?"
            )
        time.sleep(LOOK_EVERY_SECONDS)


def _lint(files: Sequence[str], *, output: str) -> int:
    from .lint import lint

    report = lint(files)
    if output == "json":
        print(json.dumps([found.to_json() for found in report.findings], indent=2))
    else:
        for found in report.findings:
            print(found.line())
        print(f"{report.checked} checked, {report.errors} errors", file=sys.stderr)
    return LINT_ERRORS if report.errors else 0


def _status(read: Callable[[], Resource], *, watch: bool, output: str) -> int:
    shown = ""
    rewrite = watch and output == "text" and sys.stdout.isatty()
    while True:
        now = datetime.now(UTC)
        try:
            resource = read()
        except Unreachable as error:
            if not watch or not shown:
                raise
            print(f"error: {error}; trying again", file=sys.stderr)
        else:
            # On a terminal ages move on; elsewhere one block for each change.
            mark = str(resource.raw_status) + str(resource.generation)
            if rewrite or mark != shown:
                _print(resource, now, output=output, watch=watch, rewrite=rewrite)
            shown = mark
        if not watch:
            return 0
        time.sleep(LOOK_EVERY_SECONDS)


def _print(resource: Resource, now: datetime, *, output: str, watch: bool, rewrite: bool) -> None:
    if output == "json":
        found = screen.document(resource, now)
        print(json.dumps(found, indent=None if watch else 2), flush=True)
        return
    head = "\x1b[H\x1b[2J" if rewrite else ""
    foot = "" if rewrite or not watch else f"\n--- {now.strftime('%H:%M:%S')} UTC"
    print(head + screen.text(resource, now) + foot, flush=True)


if __name__ == "__main__":
    sys.exit(main())
