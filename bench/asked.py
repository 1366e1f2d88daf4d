"""What a measurement asks of one SpeculativeDeployment, wherever it runs."""

import asyncio
import contextlib
import json
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.followed import Followed

from speculative_api.gateway import ROUTE_KEY
from speculative_operator.cluster.client import MERGE_PATCH, Client
from speculative_operator.cluster.resources import CONFIG_MAP, SPECULATIVE_DEPLOYMENT
from speculative_operator.desired import names
from speculative_operator.errors import ApiError

JSON = dict[str, Any]
POLL_SECONDS = 0.002
"""Between two questions to an Envoy."""
PATIENCE_SECONDS = 300.0
"""For all of a step; then it is said what is missing."""
AGAIN_SECONDS = 1.0
"""A question is put again after so long without a change."""


@dataclass
class Asked(ABC):
    """The resource `name` in `namespace`; `client` and `seen` are there once the context was
    entered."""

    namespace: str = "default"
    name: str = "chat"
    client: Client = field(init=False)
    seen: Followed = field(init=False)
    """The resources of the namespace, and their routes."""

    @abstractmethod
    async def until_weight_zero(self, revision: str, *, every: float) -> float | None:
        """When the last Envoy gave it nothing (loop time), asked so often; None without Envoys."""

    async def annotate(self, annotations: dict[str, str]) -> None:
        """A person's word."""
        await self.edit({"metadata": {"annotations": annotations}})

    async def edit(self, patch: JSON) -> None:
        """A merge patch of the resource."""
        path = SPECULATIVE_DEPLOYMENT.path(self.namespace, self.name)
        await self.client.request(
            "edit", SPECULATIVE_DEPLOYMENT, "PATCH", path, body=patch, content_type=MERGE_PATCH
        )

    def status(self) -> JSON:
        """The resource's status, as it was told last."""
        own = self.seen.store(SPECULATIVE_DEPLOYMENT).of((self.namespace, self.name))
        status: JSON = own.get(self.name, {}).get("status", {})
        return status

    def said(self) -> str:
        """Its conditions in a line, for who waited in vain."""
        words = (
            f"{c['type']}={c['status']} {c['reason']} ({c['message']})"
            for c in self.status().get("conditions", ())
        )
        return f"{self.name}: {', '.join(words) or 'no status'}"

    async def canary_with_weight(self) -> str:
        """The hash of a canary whose weight was seen everywhere; empty without one."""
        canary = self.status().get("canary") or {}
        return canary["hash"] if canary.get("weightObservedAt") else ""

    async def until_written(self, revision: str) -> float:
        """When the API server told of a route that gives it nothing (loop time)."""

        async def unweighted() -> bool:
            routes = self.seen.store(CONFIG_MAP).of((self.namespace, self.name))
            stored = routes.get(names.route(self.name))
            if stored is None:
                return False
            backends = json.loads(stored["data"][ROUTE_KEY])["backends"]
            return not any(each["weight"] for each in backends if each["hash"] == revision)

        await self.until(unweighted)
        return asyncio.get_running_loop().time()

    async def until_observed(self, revision: str) -> float:
        """When the operator had seen that everywhere, by its status (loop time)."""

        async def left() -> bool:
            status = self.status()
            canary = status.get("canary") or {}
            staying = [
                entry
                for entry in status.get("retiring") or ()
                if entry["hash"] == revision and not entry.get("routeRemovedAt")
            ]
            return canary.get("hash") != revision and not staying

        await self.until(left)
        return asyncio.get_running_loop().time()

    async def until_removed(self, revision: str) -> None:
        """Waits until nothing of it is on its way any more."""

        async def gone() -> bool:
            status = self.status()
            return not status.get("retiring") and not status.get("canary")

        await self.until(gone)

    async def is_serving(self) -> bool:
        """Whether stable has its pods and every gateway uses the route."""
        conditions = {c["type"]: c["status"] for c in self.status().get("conditions", ())}
        return all(conditions.get(kind) == "True" for kind in ("Available", "GatewayReady"))

    async def until(self, question: Callable[[], Awaitable[Any]]) -> Any:
        """The first true answer; errors of the API server count as no."""
        while True:
            change = self.seen.next_change()
            with contextlib.suppress(ApiError):
                if found := await question():
                    return found
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), AGAIN_SECONDS)


async def of_all(
    what: str, members: Sequence[Asked], question: Callable[[Asked], Awaitable[Any]]
) -> None:
    """Waits until each answers with something true; says on standard error how many did.

    TimeoutError after `PATIENCE_SECONDS`, with what those say that did not.
    """
    missing = {member.name: member for member in members}

    async def one(member: Asked) -> None:
        await member.until(lambda: question(member))
        del missing[member.name]
        done = len(members) - len(missing)
        print(f"\r{what}: {done}/{len(members)}  ", end="", file=sys.stderr, flush=True)

    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await asyncio.gather(*(one(member) for member in members))
    except TimeoutError as error:
        said = "; ".join(member.said() for member in missing.values())
        raise TimeoutError(f"{what}, not within {PATIENCE_SECONDS:.0f} s: {said}") from error
    finally:
        print(file=sys.stderr)
