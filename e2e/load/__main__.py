"""`python -m e2e.load --url http://127.0.0.1:8080`: load from the command line.

Ends by --duration, --requests, SIGINT or SIGTERM, each time letting running
answers end; a second signal ends at once. Exit codes: 0 nothing failed, was
cut or abandoned; 1 something was, or nothing was answered; 2 it could not begin.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from .addresses import AddressError
from .counts import Report, Result
from .generator import Load, LoadError
from .prompts import PROMPTS

TERMINAL_LINE_EVERY_SECONDS = 2.0
LOG_LINE_EVERY_SECONDS = 10.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.load", description=__doc__)
    parser.add_argument("--url", required=True, help="http://HOST[:PORT], loopback or private")
    parser.add_argument("--streams", type=int, default=3, help="requests at once; default 3")
    parser.add_argument("--prompts", choices=sorted(PROMPTS), default="copy-heavy")
    parser.add_argument("--max-tokens", type=int, default=24, help="default 24")
    parser.add_argument("--model", help="default: the first that /v1/models names")
    parser.add_argument("--lane", help="value of the lane header, for instance native")
    parser.add_argument(
        "--api-key-file", type=Path, metavar="FILE", help="the bearer token, for a guarded gateway"
    )
    parser.add_argument("--no-stream", action="store_true", help="ask for whole answers")
    parser.add_argument("--requests", type=int, help="end after so many")
    until = parser.add_mutually_exclusive_group()
    until.add_argument("--duration", type=float, default=60.0, help="seconds; default 60")
    until.add_argument("--until-stopped", action="store_true", help="until a signal comes")
    parser.add_argument("--timeout", type=float, default=120.0, help="longest silence, seconds")
    parser.add_argument("--drain", type=float, default=60.0, help="seconds for running answers")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the load; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        report = asyncio.run(_run(arguments))
    except (AddressError, LoadError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report.to_json(), indent=2) + "\n", encoding="utf-8")
    print(report.line())
    for text in report.errors:
        print(f"  {text}")
    return 0 if report.ok and report.ok == report.requests else 1


async def _run(arguments: argparse.Namespace) -> Report:
    load = Load(
        arguments.url,
        streams=arguments.streams,
        prompts=arguments.prompts,
        max_tokens=arguments.max_tokens,
        lane=arguments.lane,
        api_key=arguments.api_key_file.read_text().strip() if arguments.api_key_file else None,
        model=arguments.model,
        stream=not arguments.no_stream,
        requests=arguments.requests,
        timeout_seconds=arguments.timeout,
        drain_seconds=arguments.drain,
    )
    stop = asyncio.Event()
    now = asyncio.Event()

    def signalled() -> None:
        (now if stop.is_set() else stop).set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, signalled)
    deadline = None if arguments.until_stopped else time.monotonic() + arguments.duration
    async with load:
        print(f"{arguments.streams} streams on {arguments.url}", flush=True)
        await _until_over(load, stop, deadline)
        stopping = asyncio.create_task(load.stop())
        hurry = asyncio.create_task(now.wait())
        await asyncio.wait([stopping, hurry], return_when=asyncio.FIRST_COMPLETED)
        if not stopping.done():
            stopping.cancel()
        hurry.cancel()
        await asyncio.gather(stopping, hurry, return_exceptions=True)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    return load.report()


async def _until_over(load: Load, stop: asyncio.Event, deadline: float | None) -> None:
    terminal = sys.stdout.isatty()
    every = TERMINAL_LINE_EVERY_SECONDS if terminal else LOG_LINE_EVERY_SECONDS
    started = time.monotonic()
    finished = asyncio.create_task(load.finished())
    stopped = asyncio.create_task(stop.wait())
    try:
        while not stopped.done() and not finished.done():
            left = every if deadline is None else min(every, deadline - time.monotonic())
            if left <= 0:
                return
            await asyncio.wait(
                [finished, stopped], timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            line = f"{time.monotonic() - started:5.0f} s  {_line(load)}"
            print(f"\r\x1b[K{line[:150]}" if terminal else line, end="" if terminal else "\n")
            sys.stdout.flush()
    finally:
        finished.cancel()
        stopped.cancel()
        await asyncio.gather(finished, stopped, return_exceptions=True)


def _line(load: Load) -> str:
    report = load.report()
    waiting = report.results[Result.ABANDONED]
    return report.line() + (f", {waiting} abandoned" if waiting else "")


if __name__ == "__main__":
    sys.exit(main())
