"""`Wants` of a shared gateway: one member's bad route, or end, is nobody else's matter.

Of each member the last good route stays in use while a newer one can't be. What Envoy
itself does not take is found by trying members' changes one after the other; then that
text is set aside for a while.
"""

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from speculative_api import gateway

from .acceptance import accepted, reasons
from .configuration import Configuration
from .credentials import Credentials
from .errors import RouteRefused
from .guards import Guard
from .joint import aliased, joint, part, revisions
from .policies import policies
from .render import NO_KEYS
from .settings import Settings
from .source import Observation
from .wants import Share, Wanted, said

_log = logging.getLogger("speculative_gateway.agent")

AGAIN_SECONDS = 30.0
"""Until a text that Envoy did not take is tried once more."""
NOBODY = gateway.Access(auth=gateway.Auth())
"""Of a member whose access can't be rendered, and that had none before: there is no such key."""
GATEWAY = ""
"""Where members' names stand: what belongs to no member alone."""


Whole = tuple[tuple[gateway.Member, ...], dict[str, Configuration], dict[str, Guard]]
"""Members, and of each its part and whom it lets in."""


@dataclass(frozen=True, slots=True)
class InUse:
    """What belongs to the gateway, each member's route if it has one, and whom it lets in."""

    shared: gateway.SharedGateway
    routes: Mapping[str, gateway.Route]
    accesses: Mapping[str, gateway.Access] = field(default_factory=dict)
    """By the member's owner."""


class ManyRoutes:
    """`Wants` of a gateway with members."""

    def __init__(self, settings: Settings, credentials: Credentials) -> None:
        self._settings = settings
        self._credentials = credentials
        self._last: InUse | None = None
        self._next: InUse | None = None
        self._parts: dict[str, Configuration] = {}
        """The last good rendering of each member."""
        self._guards: dict[str, Guard] = {}
        """Of each member, as wanted last."""
        self._joint: tuple[Whole, Configuration] | None = None
        """What was wanted last, and what it was made of: a look a second is not to join it anew."""
        self._tried: dict[str, str] = {}
        """Texts that are being tried and differ from what is in use, by whose they are."""
        self._not_taken: dict[str, tuple[str, float]] = {}
        """Texts that Envoy did not take, and when (monotonic)."""
        self._one_by_one = False
        self._problems: dict[str, str] = {}
        self._locked: frozenset[str] = frozenset()

    @property
    def routes(self) -> Mapping[str, gateway.Route]:
        """See `Wants`."""
        found = self._last.routes if self._last is not None else {}
        return {name: aliased(name, route) for name, route in found.items()}

    def adopt(self, text: str) -> None:
        """See `Wants`."""
        kept = json.loads(text)
        try:
            self._last = InUse(
                gateway.SharedGateway.model_validate(kept["shared"]),
                {name: gateway.Route.model_validate(each) for name, each in kept["routes"].items()},
                {
                    owner: gateway.Access.model_validate(each)
                    for owner, each in kept["accesses"].items()
                },
            )
            self._credentials.remember(kept["mounted"])
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not of a shared gateway: {error!r}") from error

    def wanted(self, observation: Observation | None, on_disk: Configuration) -> Wanted:
        """See `Wants`."""
        as_it_is = Wanted(on_disk, is_known=self._last is not None, locked=self._locked)
        if observation is None:
            return as_it_is
        if observation.problem:
            self._problems = {GATEWAY: said(observation.problem, self._problems.get(GATEWAY, ""))}
            return as_it_is
        before, self._problems, self._tried = self._problems, {}, {}
        shared = self._shared(observation)
        if shared is None:
            self._told(before)
            return as_it_is
        routes = self._routes(shared, observation)
        parts = self._rendered(routes, observation)
        self._guards = self._guarded(shared, observation)
        made_of = (shared.members, parts, self._guards)
        if self._joint is None or self._joint[0] != made_of:
            self._joint = (made_of, joint(*made_of))
        configuration = self._joint[1]
        self._told(before)
        self._one_by_one = self._one_by_one and bool(self._tried)
        accesses = {each.owner_uid: self._guards[each.name].access for each in shared.members}
        self._next, self._locked = InUse(shared, routes, accesses), self._who_is_locked()
        return Wanted(configuration, is_new=self._next != self._last, locked=self._locked)

    def _shared(self, observation: Observation) -> gateway.SharedGateway | None:
        """What belongs to the gateway; the last one where the newest is missing or unusable."""
        last, text = self._last.shared if self._last else None, observation.shared
        if text is None:
            return last
        if self._is_set_aside(GATEWAY, text):
            self._note(GATEWAY, "Envoy did not take the gateway's newest settings")
            return last
        try:
            found = gateway.SharedGateway.model_validate_json(text)
        except ValidationError as error:
            self._note(GATEWAY, f"{gateway.SHARED_KEY} refused: {reasons(error)}")
            return last
        if found != last:
            self._tried[GATEWAY] = text
        return found

    def _routes(
        self, shared: gateway.SharedGateway, observation: Observation
    ) -> dict[str, gateway.Route]:
        """The route of every member that has one: the newest, or the one in use."""
        before = self._last.routes if self._last else {}
        found = {}
        for member in shared.members:
            last = before.get(member.name)
            if last is not None and last.owner_uid != member.owner_uid:
                # Of a former resource of this name.
                last = None
            route = self._newest(member, last, observation)
            if route is not None:
                found[member.name] = route
        return found

    def _newest(
        self, member: gateway.Member, last: gateway.Route | None, observation: Observation
    ) -> gateway.Route | None:
        text = observation.routes.get(member.name)
        if text is None:
            return last
        if self._is_set_aside(member.name, text):
            self._note(member.name, "Envoy did not take this route")
            return last
        try:
            route = accepted(
                text, observation.endpoints, last=last, authorities=self._settings.authorities
            )
            if route.owner_uid != member.owner_uid:
                raise RouteRefused(f"route refused: it is of another {member.name}")
        except RouteRefused as refusal:
            self._note(member.name, str(refusal))
            return last
        if route == last:
            return last
        if self._one_by_one and self._tried:
            # Another one's turn: this change waits.
            return last
        self._tried[member.name] = text
        return route

    def _guarded(self, shared: gateway.SharedGateway, observation: Observation) -> dict[str, Guard]:
        """Whom each member lets in, with the keys as they are now."""
        wanted = [(each, shared.access_of(each)) for each in shared.members]
        former = self._last.accesses if self._last else {}
        asked = [access.auth for _, access in wanted] + [each.auth for each in former.values()]
        self._credentials.asked([each for each in asked if each is not None])
        found = {}
        for member, access in wanted:
            access = self._possible(member, access, observation)
            guard = Guard(access)
            if access != NOBODY:
                keys = self._credentials.keys(access.auth, observation.secrets)
                guard = Guard(access, keys, self._credentials.key_set(access.auth))
                self._note(member.name, keys.problem, guard.key_set.problem)
            found[member.name] = guard
        return found

    def _who_is_locked(self) -> frozenset[str]:
        found = {name for name, guard in self._guards.items() if guard.is_locked}
        whole = {GATEWAY} if found and len(found) == len(self._guards) else set()
        return frozenset(found | whole)

    def _possible(
        self, member: gateway.Member, wanted: gateway.Access, observation: Observation
    ) -> gateway.Access:
        """The member's access; what it had of it while the newer can't be in this pod."""
        wanted = wanted.model_copy(update={"settings": {}})
        former = self._last.accesses.get(member.owner_uid) if self._last else None
        try:
            policies(wanted, NO_KEYS)
        except RouteRefused as refusal:
            self._note(member.name, str(refusal))
            return former or NOBODY
        before = former.auth if former else None
        auth, why = self._credentials.possible(wanted.auth, before, observation.secrets)
        self._note(member.name, why)
        return wanted.model_copy(update={"auth": auth})

    def _rendered(
        self, routes: dict[str, gateway.Route], observation: Observation
    ) -> dict[str, Configuration]:
        """Every member's part; one whose endpoints can't be used keeps the part it had."""
        found = {}
        for name, route in list(routes.items()):
            try:
                found[name] = part(
                    name,
                    route,
                    observation.endpoints,
                    folder=self._settings.xds,
                    waiting_port=self._settings.waiting_port,
                )
            except RouteRefused as refusal:
                self._note(name, str(refusal))
                self._tried.pop(name, None)
                last = self._last.routes.get(name) if self._last else None
                if name in self._parts and last is not None:
                    found[name], routes[name] = self._parts[name], last
                else:
                    del routes[name]
        self._parts = found
        return found

    def took(self) -> str:
        """See `Wants`."""
        use = self._next
        if use is None:
            raise ValueError("nothing was wanted")
        for name in self._tried:
            self._not_taken.pop(name, None)
        self._last = use
        sequences = {name: route.sequence for name, route in use.routes.items()}
        _log.info("in use members=%s", sequences)
        drains = [each.drain_seconds for each in use.routes.values()]
        kept = {
            "shared": use.shared.model_dump(mode="json", by_alias=True),
            "routes": {
                name: route.model_dump(mode="json", by_alias=True)
                for name, route in use.routes.items()
            },
            "accesses": {
                owner: access.model_dump(mode="json", by_alias=True)
                for owner, access in use.accesses.items()
            },
            "mounted": self._credentials.mounted(),
            # For the supervisor: whoever wants longest.
            "drainSeconds": max((each for each in drains if each is not None), default=None),
        }
        return json.dumps(kept, indent=1) + "\n"

    def failed(self) -> bool:
        """See `Wants`: whose change it was is known where there was one only."""
        if not self._tried:
            return False
        if len(self._tried) == 1:
            now = time.monotonic()
            self._not_taken |= {name: (text, now) for name, text in self._tried.items()}
            _log.error("set aside: the newest of %s", ", ".join(self._tried) or "the gateway")
        self._one_by_one = True
        return True

    def shares(self) -> dict[str, Share]:
        """See `Wants`."""
        common = self._problems.get(GATEWAY, "")
        found = {}
        for name in sorted({*self._problems, *(self._last.routes if self._last else ())} - {""}):
            route = self._last.routes.get(name) if self._last else None
            share = Share(
                error=self._problems.get(name, "") or common,
                names={},
            )
            if route is not None:
                share = replace(
                    share,
                    owner_uid=route.owner_uid,
                    sequence=route.sequence,
                    names=revisions(name, route),
                )
            found[name] = share
        return found

    def _is_set_aside(self, whose: str, text: str) -> bool:
        """Whether Envoy did not take this text a moment ago. Later it gets another try: whether
        an Envoy was slow or the text is bad nobody can tell."""
        known, at = self._not_taken.get(whose, ("", 0.0))
        return known == text and time.monotonic() < at + AGAIN_SECONDS

    def _note(self, whose: str, *problems: str) -> None:
        known = self._problems.get(whose, "")
        found = "; ".join(each for each in (known, *problems) if each)
        if found:
            self._problems[whose] = found

    def _told(self, before: Mapping[str, str]) -> None:
        for whose, problem in self._problems.items():
            said(f"{whose or 'gateway'}: {problem}", f"{whose or 'gateway'}: {before.get(whose)}")
