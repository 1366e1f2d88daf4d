"""What the agent wants Envoy to hold, from what was observed: `Wants` in its two forms.

`OneRoute` is a gateway of one resource; `many_routes.ManyRoutes` one that several
have together. Each remembers what is in use and keeps the last good of what can't be
used. No IO but the mounted keys; the agent applies and reads back.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from speculative_api import gateway

from .acceptance import accepted
from .configuration import Configuration
from .credentials import Credentials
from .errors import RouteRefused
from .render import rendered
from .settings import Settings
from .source import Observation

_log = logging.getLogger("speculative_gateway.agent")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What Envoy is to hold."""

    configuration: Configuration
    is_new: bool = False
    """Whether something else than before is in use once it does."""
    is_known: bool = True
    """Whether anything is to be in use: false before the first route."""
    locked: frozenset[str] = frozenset()
    """Members, as in `Wants.shares`, of whom keys are asked and there are none; under an empty
    name: nobody is let in, to whatever is here."""


@dataclass(frozen=True, slots=True)
class Share:
    """One resource's part of what is in use; `names` has its revisions by their name in Envoy."""

    owner_uid: str = ""
    sequence: int = -1
    error: str = ""
    names: Mapping[str, str] | None = None
    """None: every revision, each under its own hash."""


class Wants(Protocol):
    """Decides what to hold."""

    @property
    def routes(self) -> Mapping[str, gateway.Route]:
        """The routes in use, by member as in `shares`, with the revisions as Envoy knows them:
        for requests that have to wait."""

    def adopt(self, text: str) -> None:
        """Takes what an earlier agent of this pod had in use.

        Raises:
            ValueError: it is not usable.
        """

    def wanted(self, observation: Observation | None, on_disk: Configuration) -> Wanted:
        """The newest usable; what is on disk where there is none."""

    def took(self) -> str:
        """What was wanted last is in use now; gives the text to keep it by."""

    def failed(self) -> bool:
        """Envoy did not take what was wanted last; gives whether something else is worth trying
        at once."""

    def shares(self) -> dict[str, Share]:
        """What is in use, by member; under an empty name where it belongs to one alone."""


def said(problem: str, before: str) -> str:
    """The problem, logged if it is a new one."""
    if problem and problem != before:
        _log.error("%s", problem)
    return problem


class OneRoute:
    """`Wants` of a gateway that belongs to one resource."""

    def __init__(self, settings: Settings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._last: gateway.Route | None = None
        self._next: tuple[gateway.Route, Configuration] | None = None
        self._refusal = ""
        """Why the newest observation is not used as it is."""
        self._locked: frozenset[str] = frozenset()

    @property
    def routes(self) -> Mapping[str, gateway.Route]:
        """See `Wants`."""
        return {"": self._last} if self._last is not None else {}

    def adopt(self, text: str) -> None:
        """See `Wants`."""
        self._last = gateway.Route.model_validate_json(text)

    def wanted(self, observation: Observation | None, on_disk: Configuration) -> Wanted:
        """See `Wants`."""
        as_it_is = Wanted(on_disk, is_known=self._last is not None, locked=self._locked)
        if observation is None:
            return as_it_is
        endpoints, problem, route = observation.endpoints, observation.problem, self._last
        try:
            if problem:
                raise RouteRefused(problem)
            if observation.route is not None:
                try:
                    route = accepted(
                        observation.route,
                        endpoints,
                        last=self._last,
                        authorities=self._settings.authorities,
                    )
                except RouteRefused as refusal:
                    problem = str(refusal)
            if route is None:
                self._refusal = said(problem, self._refusal)
                return as_it_is
            before = self._last.auth if self._last is not None else None
            self._credentials.asked([each for each in {route.auth, before} if each is not None])
            auth, why = self._credentials.possible(route.auth, before, observation.secrets)
            route = route.model_copy(update={"auth": auth})
            keys = self._credentials.keys(route.auth, observation.secrets)
            found = self._credentials.key_set(route.auth)
            is_locked = route.auth is not None and not (keys.by_client or found.text)
            problem = "; ".join(
                each for each in (problem, why, keys.problem, found.problem) if each
            )
            wanted = rendered(
                route,
                endpoints,
                folder=self._settings.xds,
                keys=keys,
                key_set=found,
                waiting_port=self._settings.waiting_port,
            )
        except RouteRefused as refusal:
            self._refusal = said(str(refusal), self._refusal)
            return as_it_is
        self._refusal = said(problem, self._refusal)
        self._next, self._locked = (route, wanted), frozenset({""} if is_locked else ())
        return Wanted(wanted, is_new=route != self._last, locked=self._locked)

    def took(self) -> str:
        """See `Wants`."""
        if self._next is None:
            raise ValueError("nothing was wanted")
        self._last, wanted = self._next
        _log.info("in use sequence=%d weights=%s", self._last.sequence, dict(wanted.weights))
        return self._last.model_dump_json(by_alias=True, indent=1) + "\n"

    def failed(self) -> bool:
        """See `Wants`."""
        return False

    def shares(self) -> dict[str, Share]:
        """See `Wants`."""
        share = Share(error=self._refusal)
        if self._last is not None:
            share = replace(share, owner_uid=self._last.owner_uid, sequence=self._last.sequence)
        return {"": share}
