"""`kubectl speculative`: reads the command line, talks to the API server, prints.

Exit codes: 0 done; 1 no usable cluster, or refused by it; 2 bad command line;
3 not found; 4 the request makes no sense now; 5 asked, but not seen in time;
6 lint found errors; 141 whoever read the output went away, as after SIGPIPE.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from . import requests, terminal
from .arguments import parse_command_line
from .errors import CliError, TimedOut
from .resource import Resource, parse

if TYPE_CHECKING:
    from .cluster import Cluster

LINT_ERRORS = 6
"""Exit code."""
READER_GONE = 141
"""Exit code: what a shell says of a program that SIGPIPE ended."""
_PLAIN = {"abort": requests.abort, "pause": requests.pause, "resume": requests.resume}
LOOK_EVERY_SECONDS = 1.0
"""Time between two looks of --wait."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit code."""
    try:
        code = _command(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        # `| head` has enough. What is still to be written at exit goes nowhere, and quietly.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return READER_GONE
    return code


def _command(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["__complete"]:
        from .completion import complete

        return complete(words[1:])
    arguments = parse_command_line(words)
    if arguments.verb == "completion":
        from .completion import SCRIPTS

        print(SCRIPTS[arguments.shell], end="")
        return 0
    if arguments.verb == "lint":
        return _lint(arguments)
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
        print(terminal.printable(f"error: {error}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(arguments: argparse.Namespace, cluster: "Cluster") -> int:
    from . import commands, watching

    def read() -> Resource:
        return parse(cluster.read(arguments.name))

    match arguments.verb:
        case "status":
            wanted = watching.Wanted(
                output=arguments.output, watch=arguments.watch, every_pod=arguments.all_pods
            )
            watching.status(read, cluster, wanted)
        case "list":
            everywhere = arguments.all_namespaces
            commands.show_all(cluster, everywhere=everywhere, output=arguments.output)
        case "history":
            wanted, output = arguments.revision, arguments.output
            commands.show_history(cluster, read(), revision=wanted, output=output)
        case "diff":
            commands.show_difference(cluster, read(), old=arguments.old, new=arguments.new)
        case "explain-verdict":
            commands.explain(cluster, read(), output=arguments.output, plot_file=arguments.plot)
        case "undo":
            commands.go_back(cluster, read(), to=arguments.to)
        case _:
            _ask(arguments, cluster, read)
    return 0


def _ask(arguments: argparse.Namespace, cluster: "Cluster", read: Callable[[], Resource]) -> None:
    request = _request(arguments, read())
    if isinstance(request, str):
        terminal.say(f"nothing to do: {request}")
        return
    cluster.annotate(arguments.name, annotation=request.annotation, value=request.value)
    terminal.say(f"asked: {request.sentence}")
    if arguments.wait:
        terminal.say(_outcome(request, read, seconds=arguments.timeout))


def _request(arguments: argparse.Namespace, resource: Resource) -> requests.Request | str:
    meant: str | None = arguments.hash
    match arguments.verb:
        case "promote":
            way = requests.Way.FULL if arguments.full else requests.Way.PAUSE
            way = requests.Way.STEP if arguments.skip_step else way
            return requests.promote(resource, step=arguments.step, way=way, meant=meant)
        case "restart":
            now = datetime.now(UTC)
            return requests.restart(resource, rerender=arguments.rerender, meant=meant, now=now)
        case "recover":
            now = datetime.now(UTC)
            anew = arguments.rebaseline
            return requests.recover(resource, rebaseline=anew, meant=meant, now=now)
        case "retry":
            return requests.retry(resource, revision=meant, now=datetime.now(UTC))
        case _:
            return _PLAIN[arguments.verb](resource, meant=meant)


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


def _lint(arguments: argparse.Namespace) -> int:
    from .lint import lint
    from .models import model_problems

    memory = arguments.gpu_memory_gib
    judge = partial(model_problems, gpu_gibibytes=memory) if arguments.with_models else None
    report = lint(arguments.files, judge)
    if arguments.output == "sarif":
        from .sarif import log_of

        print(json.dumps(log_of(report.findings), indent=2))
    elif arguments.output == "json":
        print(json.dumps([found.to_json() for found in report.findings], indent=2))
    else:
        for found in report.findings:
            terminal.show(terminal.printable(found.line()))
        print(f"{report.checked} checked, {report.errors} errors", file=sys.stderr)
    return LINT_ERRORS if report.errors else 0


if __name__ == "__main__":
    sys.exit(main())
