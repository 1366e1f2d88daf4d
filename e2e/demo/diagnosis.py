"""What to show when the demo fails: conditions, events, and the ends of the pods' logs."""

from collections.abc import Awaitable

from .errors import DemoError
from .kube import Kube
from .terminal import Display
from .world import Observer, pod_view

LOG_LINES = 25


async def show(kube: Kube, observer: Observer, display: Display, operator_namespace: str) -> None:
    """Prints all that can still be read; never raises for what can't."""
    display.plain("\n-- conditions of the resource")
    await _try(display, _conditions(kube, observer, display))
    display.plain("\n-- events in its namespace (newest last)")
    # The local cluster has no DNS of its own, which the kubelet says again and again.
    which = ("--sort-by=.lastTimestamp", "--field-selector=reason!=MissingClusterDNS")
    await _try(display, _tail(kube, display, "get", "events", "-n", observer.namespace, *which))
    await _try(display, _pods(kube, observer, display))
    display.plain(f"\n-- the operator's log ({operator_namespace})")
    # By the chart's own labels; --prefix says which pod spoke.
    marks = "-lapp.kubernetes.io/name=speculative-operator"
    logs = ("logs", "-n", operator_namespace, marks, f"--tail={LOG_LINES}", "--prefix")
    await _try(display, _tail(kube, display, *logs))


async def _try(display: Display, work: Awaitable[None]) -> None:
    try:
        await work
    except DemoError as error:
        display.plain(f"   (can't be read: {error})")


async def _conditions(kube: Kube, observer: Observer, display: Display) -> None:
    raw = await kube.look(observer.path)
    if raw is None:
        display.plain("   (the resource does not exist)")
        return
    status = raw.get("status", {})
    for found in status.get("conditions", []):
        head = f"{found['type']}={found['status']} {found['reason']}"
        display.plain(f"   {head}: {found.get('message', '')}")
    for failed in status.get("failedRevisions", []):
        display.plain(f"   failed {failed['hash']} {failed['reason']}: {failed.get('message', '')}")


async def _tail(kube: Kube, display: Display, *arguments: str) -> None:
    for line in (await kube.kubectl(*arguments)).splitlines()[-LOG_LINES:]:
        display.plain(f"   {line}")


async def _pods(kube: Kube, observer: Observer, display: Display) -> None:
    for raw in await observer.raw_pods():
        pod = pod_view(raw)
        state = "ready" if pod.ready else pod.waiting or "not ready"
        display.plain(f"\n-- pod {pod.name}: {state}, {pod.restarts} restarts")
        logs = ("logs", "-n", observer.namespace, pod.name, "--all-containers")
        await _try(display, _tail(kube, display, *logs, f"--tail={LOG_LINES}"))
        if pod.restarts:
            display.plain("   before its last restart:")
            await _try(display, _tail(kube, display, *logs, f"--tail={LOG_LINES}", "--previous"))
