"""Where the route and the ready endpoints come from.

`Source` has two forms: `kubernetes` (a pod's) and `FromDirectory` (tests and a
run without Kubernetes). Each calls `changed` with a whole `Observation`; the
agent never sees a half-listed world.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from speculative_api import gateway, labels

from .render import Endpoint, Endpoints

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Observation:
    """The world as last seen."""

    route: str | None = None
    """The route's JSON text as written by the operator; None where there is no ConfigMap."""
    shared: str | None = None
    """At a shared gateway: what belongs to it alone, likewise; `route` is None there."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """At a shared gateway: the text of each route, by member."""
    endpoints: Endpoints = field(default_factory=dict)
    secrets: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict, repr=False)
    """Entries of the Secrets with API keys, by name; of one that may not be read here, and is left
    out, what is mounted counts."""
    problem: str = ""
    """Why the endpoints can't be used; the agent then keeps what it has."""


class Source(Protocol):
    """Something that watches."""

    async def watch(self, changed: Callable[[Observation], None]) -> None:
        """Calls `changed` at first and after every change, until cancelled."""


class FromDirectory:
    """Reads `route.json` and `endpoints.json` (Service name -> list of endpoints).

    At a shared gateway `shared.json`, and `NAME-member.json` of each member.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def watch(self, changed: Callable[[Observation], None]) -> None:
        """Looks at both files ten times a second; see `Source.watch`."""
        last: Observation | None = None
        while True:
            seen = observation(self._text(gateway.ROUTE_KEY), self._text("endpoints.json") or "{}")
            seen = replace(seen, shared=self._text(gateway.SHARED_KEY), routes=self._routes())
            if seen != last:
                last = seen
                changed(seen)
            await asyncio.sleep(POLL_SECONDS)

    def _routes(self) -> dict[str, str]:
        ending = f"{labels.MEMBER_ROUTE_SUFFIX}.json"
        found = {
            path.name.removesuffix(ending): self._text(path.name)
            for path in self._folder.glob(f"[!.]*{ending}")
        }
        return {name: text for name, text in found.items() if text is not None}

    def _text(self, name: str) -> str | None:
        try:
            return (self._folder / name).read_text()
        except FileNotFoundError:
            return None


def observation(route: str | None, endpoints: str) -> Observation:
    """Parses the text of `endpoints.json`; an unusable one becomes the `problem`."""
    try:
        parsed = {
            service: tuple(
                Endpoint(
                    address=str(each["address"]),
                    port=int(each["port"]),
                    health_port=int(each["healthPort"]),
                )
                for each in addresses
            )
            for service, addresses in json.loads(endpoints).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return Observation(route=route, problem=f"endpoints.json: {error!r}")
    return Observation(route=route, endpoints=parsed)
