"""`python -m e2e.demo`: the whole demo, or only its main job on a cluster that is ready.

Exit codes: 0 everything happened as it should; 1 something did not (the reason,
the resource's conditions and the ends of the logs are on the screen); 130
interrupted. The load ends with this process in every case.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml
from e2e.cluster.images import GATEWAY_IMAGE, OPERATOR_IMAGE, SIMULATE_IMAGE, WORKER_IMAGE
from e2e.cluster.settings import current_settings
from e2e.load import Load, LoadError
from e2e.load.addresses import AddressError

from . import diagnosis, documents, phases, setup
from .errors import DemoError
from .kube import Kube
from .phases import Demo
from .report import DemoReport
from .terminal import Display
from .watch import Watch
from .world import Observer

REPOSITORY = Path(__file__).resolve().parents[2]
LOAD_TOKENS = 12
"""Longest answer under load: short ones fill the blocks of the judgement sooner on two cores."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__)
    parser.add_argument("--example", type=Path, default=REPOSITORY / "examples/smollm2.yaml")
    parser.add_argument("--namespace", default="llm")
    parser.add_argument("--models", help="folder of the models on the node; default: ours")
    parser.add_argument("--streams", type=int, default=4, choices=range(2, 5))
    parser.add_argument("--report", type=Path, default=REPOSITORY / "build/demo-report.json")
    parser.add_argument(
        "--skip-setup", action="store_true", help="the cluster, images, model and chart are there"
    )
    parser.add_argument(
        "--rehearse",
        action="store_true",
        help="simulated engines in place of vLLM: the script itself, in a few minutes",
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the demo; returns the exit code."""
    arguments = _parser().parse_args(argv)
    display, report = Display(), DemoReport()
    try:
        asyncio.run(_interruptible(arguments, display, report))
    except (DemoError, LoadError, AddressError) as error:
        report.failure = str(error)
    except (KeyboardInterrupt, asyncio.CancelledError):
        report.failure = "interrupted"
    report.phases = display.phases
    report.write(arguments.report)
    for line in report.lines():
        display.plain(line)
    display.plain(f"\nreport: {arguments.report}")
    if report.failure:
        display.plain(f"FAILED: {report.failure}")
        return 130 if report.failure == "interrupted" else 1
    display.plain(f"done in {display.elapsed_seconds / 60:.1f} minutes")
    return 0


async def _interruptible(
    arguments: argparse.Namespace, display: Display, report: DemoReport
) -> None:
    task = asyncio.current_task()
    if task is None:
        raise DemoError("no running task")
    # SIGINT does this by itself; a `make` that is ended sends SIGTERM.
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    if not arguments.skip_setup:
        with display.phase("cluster, images, model"):
            await setup.cluster(display, REPOSITORY)
    kubeconfig = await setup.kubeconfig(REPOSITORY)
    async with Kube(kubeconfig=kubeconfig, binaries=current_settings().binaries) as kube:
        if not arguments.skip_setup:
            with display.phase("helm: the operator"):
                work = setup.chart(kube, REPOSITORY, _values())
                display.say(await display.shown("helm, and the operator's start", work))
        await _main_job(arguments, kube, display, report)


def _values() -> list[str]:
    return [
        f"operator.image={OPERATOR_IMAGE}",
        f"gateway.image={GATEWAY_IMAGE}",
        f"worker.image={WORKER_IMAGE}",
        # Two engines take both cores of a small machine: the operator's share beside them.
        "resources.requests.cpu=300m",
        "settings.scrapeTimeoutSeconds=5",
    ]


async def _main_job(
    arguments: argparse.Namespace, kube: Kube, display: Display, report: DemoReport
) -> None:
    models = arguments.models or str(current_settings().models)
    example = yaml.safe_load(arguments.example.read_text(encoding="utf-8"))
    if arguments.rehearse:
        example = documents.rehearsed(example, SIMULATE_IMAGE)
    name = example["metadata"]["name"]
    observer = Observer(kube, namespace=arguments.namespace, name=name)
    demo = Demo(
        kube=kube,
        display=display,
        watch=Watch(observer, display, report.timeline),
        report=report,
        document=documents.located(example, models),
        models=models,
    )
    try:
        await _story(demo, streams=arguments.streams)
    except (DemoError, LoadError, AddressError) as error:
        display.plain(f"\nFAILED: {error}")
        await diagnosis.show(kube, observer, display, setup.OPERATOR_NAMESPACE)
        raise


async def _story(demo: Demo, *, streams: int) -> None:
    with demo.display.phase("apply, and wait for Available"):
        await phases.start(demo)
    with demo.display.phase("a chat completion through the gateway"):
        await phases.talk(demo)
    with demo.display.phase("the accelerated and the native lane, one after the other"):
        await phases.compare_lanes(demo)
    load = Load(demo.url, streams=streams, max_tokens=LOAD_TOKENS)
    try:
        async with load:
            demo.watch.figures = lambda: f"{load.report().short_line()} | "
            with demo.display.phase("a bad draft: judged and rolled back"):
                await phases.roll_back(demo, load)
            with demo.display.phase("a good revision: promoted"):
                await phases.promote(demo, load)
            with demo.display.phase("the load ends"):
                await load.stop()
    finally:
        demo.report.load = load.report()
    phases.finish_load(demo, load)


if __name__ == "__main__":
    sys.exit(main())
