"""`python -m speculative_operator`: one operator; it works while it holds the Lease."""

import asyncio
import contextlib
import gc
import logging
import os
import sys
from pathlib import Path

from speculative_operator.cluster.access import access
from speculative_operator.cluster.claims import Claims, lease_name, namespace_of
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.crd import compare
from speculative_operator.cluster.lease import Lease
from speculative_operator.cluster.ring import Ring
from speculative_operator.cluster.secrets import secret_reader
from speculative_operator.errors import OperatorError
from speculative_operator.external.prometheus import Prometheus
from speculative_operator.external.server import ExternalMetrics
from speculative_operator.external.values import Values
from speculative_operator.handlers import host
from speculative_operator.leading import Leadership
from speculative_operator.metrics.pages import Pages
from speculative_operator.metrics.prometheus import Queries
from speculative_operator.metrics.workers import Scraper
from speculative_operator.notify import Notifier
from speculative_operator.operation import Operation
from speculative_operator.serving import serving
from speculative_operator.settings import Settings
from speculative_operator.telemetry import Telemetry, log_to_stderr

log = logging.getLogger("speculative_operator")


async def operate(settings: Settings) -> None:
    """Runs until a signal ends it; the Lease is released on the way out."""
    telemetry = Telemetry()
    proofs = await access()
    async with (
        Client(
            proofs, timeout_seconds=settings.request_timeout_seconds, observe=telemetry.request
        ) as client,
        Scraper(
            timeout_seconds=settings.scrape_timeout_seconds,
            on_failure=lambda role: telemetry.unanswered.labels(role).inc(),
        ) as source,
        Queries(secret_reader(client)) as queries,
        Pages(queries) as pages,
        Notifier(
            secret_reader(client),
            count=lambda outcome: telemetry.notifications.labels(outcome).inc(),
        ) as notifier,
    ):
        operation = Operation(
            client,
            source,
            settings,
            telemetry,
            queries=queries,
            pages=pages,
            notifier=notifier,
        )
        leadership = _leadership(client, operation, settings, telemetry)

        served = _external_metrics(client, operation, source, settings)
        # Before kopf, which takes every later task for its own and cancels it at its end.
        metrics = asyncio.create_task(served.run(), name="external metrics")
        ring = asyncio.create_task(_ring(client, settings, telemetry).run(), name="ring")

        def not_ready() -> str:
            # A standby is ready: its caches are warm and it would take over at once.
            return leadership.not_ready() or operation.not_ready() or served.not_ready()

        def not_alive() -> str:
            for task in (metrics, ring):
                if task.done() and not task.cancelled() and (broken := task.exception()):
                    return f"{task.get_name()}: {broken}"
            return operation.not_alive()

        async with serving(
            port=settings.http_port, telemetry=telemetry, alive=not_alive, ready=not_ready
        ):
            leadership.start()
            try:
                await host(operation, leadership, proofs, identity=settings.identity)
            finally:
                await leadership.resign()
                for task in (metrics, ring):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task


def _leadership(
    client: Client, operation: Operation, settings: Settings, telemetry: Telemetry
) -> Leadership:
    """Who works, by the Lease of our scope, which from now on fences every write."""
    installation = settings.operator_namespace
    lease = Lease(
        client,
        namespace=namespace_of(settings.watch_namespace),
        name=lease_name(settings.own_shard),
        identity=f"{installation}/{settings.identity}",
        installation=installation,
        shard=settings.own_shard,
        duration=settings.lease_seconds,
        foreign_seconds=settings.foreign_lease_seconds,
    )
    client.fence = lambda: lease.valid
    claims = Claims(
        client,
        watch_namespace=settings.watch_namespace,
        installation=installation,
        foreign_seconds=settings.foreign_lease_seconds,
        shard=settings.own_shard,
    )
    return Leadership(
        lease,
        claims,
        operation,
        telemetry,
        compare_crd=lambda: compare(client),
        remedy=f"kubectl exec -n {installation} {settings.identity} -- "
        "python -m speculative_api | kubectl apply --server-side --force-conflicts -f -",
    )


def _ring(client: Client, settings: Settings, telemetry: Telemetry) -> Ring:
    """By every replica, so that a shard without any is seen by the others."""
    own = settings.own_shard
    telemetry.shard.labels(str(own)).set(1)
    return Ring(
        client,
        own,
        show=lambda shard, covered: telemetry.shard_covered.labels(str(shard)).set(covered),
    )


def _external_metrics(
    client: Client, operation: Operation, source: Scraper, settings: Settings
) -> ExternalMetrics:
    """By every replica, whoever leads."""
    values = Values(operation.stores, source, settings, Prometheus(settings.prometheus_url))
    folder = settings.external_metrics_certificates
    return ExternalMetrics(
        client,
        values.of,
        port=settings.external_metrics_port,
        certificates=Path(folder) if folder else None,
    )


def _collect_seldom() -> None:
    """Looking for cycles at every 700th object costs a seventh of all work and finds few.

    Imports live as long as the process, stores long, and the rest mostly ends without help.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)


def main() -> int:
    """Exit status 2: the settings or the access can't be used."""
    log_to_stderr(os.environ.get("LOG_LEVEL", "INFO"))
    try:
        settings = Settings.from_environment(os.environ)
        _collect_seldom()
        asyncio.run(operate(settings))
    except (ValueError, OperatorError) as error:
        log.error("event=not-started why=%r", str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
