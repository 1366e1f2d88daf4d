"""What the operator tells the gateways, and what a gateway's agent answers.

`Route` is the JSON under key `route.json` of ConfigMap `<name>-route`;
`GatewayState` is served by every agent on `labels.AGENT_PORT` at `/state`.
A gateway with several members has a `SharedGateway` as well, and a `Route` of each.
Unknown fields are ignored on reading: agents may lag the operator.
"""

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

ROUTE_KEY: Final = "route.json"
SHARED_KEY: Final = "shared.json"

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{10}$")]
Percent = Annotated[int, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=0, le=2**53)]
"""Bounded, like every figure that a pod reports: one that can't be true is no answer at all."""
Moment = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Unix seconds."""


class _Lenient(BaseModel):
    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore"
    )


class BackendTls(_Lenient):
    """How a revision's engines prove who they are."""

    authority: str
    """Name of the Secret whose `ca.crt` is mounted in gateway pods."""
    server_name: str
    """DNS name that their certificate has to be for."""


class Backend(_Lenient):
    """One revision: an Envoy cluster named by its hash, fed by a Service's EndpointSlices."""

    hash: Hash
    service: str
    """Name of the headless Service whose EndpointSlices (label
    `kubernetes.io/service-name`) hold the pods."""
    weight: Percent
    """Share of the accelerated lane; 0 keeps the cluster warm without traffic."""
    requests_per_endpoint: int | None = Field(default=None, ge=1)
    """How many one gateway pod may have in flight on each ready endpoint; more get 503."""
    tls: BackendTls | None = None
    """None: plain HTTP."""


class Timeouts(_Lenient):
    """Seconds; `request_seconds` 0 switches the whole-request timeout off."""

    request_seconds: int = 0
    idle_seconds: int = 300


class Jwt(_Lenient):
    """Requests need a token that this issuer signed for one of these audiences."""

    issuer: str
    audiences: tuple[str, ...] = Field(min_length=1)
    jwks_uri: str | None = None
    """Where the agent fetches the public keys; None: they are in the mounted ConfigMap."""
    jwks_config_map: str | None = None
    """Its name, for messages."""
    client_claim: str = "sub"
    """Claim that names the client."""


class Auth(_Lenient):
    """Only requests with an API key, or a token, are let in. No key is ever in the route."""

    api_keys_secret: str = ""
    """Name of the Secret, for messages; the agent reads what is mounted."""
    jwt: Jwt | None = None
    """Set: tokens and no keys."""


class Fallback(_Lenient):
    """Stable's requests go to native while stable has no healthy endpoint; no canary's ever do."""

    requests_per_endpoint: int = Field(ge=1)
    """How many one gateway pod may have in flight on each ready native endpoint; more get 503."""


class Affinity(_Lenient):
    """One session, one revision, as long as a rollout's weight only grows."""

    header: str
    """Request header that names the session; requests without it are split by chance."""
    salt: str
    """Another one chooses other sessions for the same weight."""


class HeaderMatch(_Lenient):
    """A request header with exactly this value."""

    name: str
    value: str


class LaneRule(_Lenient):
    """Requests for which all of this holds go to a lane; the first rule that holds decides."""

    lane: Literal["accelerated", "native"]
    path: str | None = None
    """This path and everything under it."""
    header: HeaderMatch | None = None
    model: str | None = None
    """Value of `labels.MODEL_HEADER`."""
    percent: Percent | None = None
    """By chance, so many of the requests that get here."""


class Shadow(_Lenient):
    """Copies of the accelerated lane's requests for a revision without weight; nobody gets their
    answers."""

    hash: Hash
    """One of the backends, and not the default one."""
    percent: Percent
    """Of the requests that are copied; 0 keeps the cluster warm without any."""
    most_requests: int = Field(ge=1)
    """Copies that one gateway pod may have in flight; of more no copy is made."""


class RateLimit(_Lenient):
    """What one gateway pod lets in of each API key."""

    requests_per_minute_per_key: int | None = Field(default=None, ge=1)
    tokens_per_minute_per_key: int | None = Field(default=None, ge=1)
    concurrent_requests_per_key: int | None = Field(default=None, ge=1)


class Waiting(_Lenient):
    """What the agent does with requests that find no worker, and why it counts them: the first
    one brings the pods back that were released while nobody asked.
    """

    hold_seconds: Count = 0
    """How long a request may wait for a worker; 0: it is answered 503 at once."""
    retry_after_seconds: int = Field(default=60, ge=1)
    """What pods took to load the last time; told to those that are not held."""


class Route(_Lenient):
    """The whole desired route of one SpeculativeDeployment.

    `backends` lists stable first and its weights sum to 100, or it is empty
    (nothing is ready yet: 503). `native` is a lane of its own, outside the sum.
    """

    schema_version: Literal[1, 2, 3, 4] = 1
    """2 where `auth` is set, 3 with tokens or `allowed_cidrs`: an agent that would ignore what
    keeps people out must refuse the route instead. 4 where engines speak TLS."""
    owner_uid: str
    sequence: Count
    """Rises with every change; an agent ignores a lower number of the same owner."""
    model: str
    """The name clients put into `model`; shown by the agent, not matched on."""
    hosts: tuple[str, ...] = ()
    """Host names that are served, `*.` first for all under a name; empty: every one."""
    default: Hash | None = None
    """Revision that gets everything should the runtime weights be lost."""
    backends: tuple[Backend, ...] = ()
    native: Backend | None = None
    lane_rules: tuple[LaneRule, ...] = ()
    """For requests that name no lane themselves; a rule to `native` counts only while it is."""
    shadow: Shadow | None = None
    """Goes with a backend of weight 0 and stays beside it at 0 percent: what comes and goes
    rewrites the route, which fills every bucket of the limits anew."""
    fallback: Fallback | None = None
    """From the first backend to `native`; without `native` it means nothing."""
    waiting: Waiting | None = None
    """Behind everything else; None: a request without a worker gets Envoy's own 503."""
    timeouts: Timeouts = Timeouts()
    auth: Auth | None = None
    rate_limit: RateLimit | None = None
    """Needs `auth`: without it there is no key to count by."""
    affinity: Affinity | None = None
    max_request_body_bytes: int | None = Field(default=None, ge=1)
    """Longer bodies are answered 413; None: no limit."""
    drain_seconds: Count | None = None
    """How long a stopping gateway lets streams run; None (an older operator's): its environment."""
    allowed_cidrs: tuple[str, ...] = ()
    """Client address ranges that are let in; everybody when empty."""
    revision_headers: bool = True
    """Whether answers say which revision and lane they come from."""

    @model_validator(mode="after")
    def _weights(self) -> Self:
        total = sum(backend.weight for backend in self.backends)
        if self.backends and total != 100:
            raise ValueError(f"backends: weights sum to {total}, need 100")
        hashes = [backend.hash for backend in self.backends]
        if len(set(hashes)) != len(hashes):
            raise ValueError("backends: a revision is listed twice")
        if self.default is not None and self.default not in hashes:
            raise ValueError(f"default: {self.default} is not among the backends")
        return self

    @model_validator(mode="after")
    def _shadowed(self) -> Self:
        if self.shadow is None:
            return self
        shadow = self.shadow
        weights = {backend.hash: backend.weight for backend in self.backends}
        if shadow.hash not in weights or shadow.hash == self.default:
            raise ValueError(f"shadow: {shadow.hash} has to be a backend, and not the default one")
        if shadow.percent and weights[shadow.hash]:
            raise ValueError(
                f"shadow: {shadow.hash} has weight {weights[shadow.hash]}: copies are for a "
                "revision without users"
            )
        return self


class Access(_Lenient):
    """Who may ask a member of a shared gateway, and how much of it."""

    auth: Auth | None = None
    rate_limit: RateLimit | None = None
    """What one key may ask of all members with this `auth` and this limit together."""
    max_request_body_bytes: int | None = Field(default=None, ge=1)
    allowed_cidrs: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    """The words in which the member says this; for the operator, agents don't read it."""


class Member(_Lenient):
    """One SpeculativeDeployment at a shared gateway."""

    name: str
    """In the path and in `labels.MODEL_HEADER`, and of its route's ConfigMap before the suffix."""
    owner_uid: str
    """A route of another owner is not its route."""
    hosts: tuple[str, ...] = ()
    """Host names that are its own, `*.` first for all under a name."""
    access: Access | None = Field(default=None, exclude_if=lambda access: access is None)
    """Its own; None where all members say the same, which is then the gateway's."""


class SharedGateway(_Lenient):
    """What belongs to a gateway and to no member alone; JSON under `SHARED_KEY`.

    Members' routes have none of the fields that are here.
    """

    schema_version: Literal[1, 2] = 1
    """2 where members have an `access` of their own: an agent that would ignore what keeps people
    out must refuse all of it instead."""
    members: tuple[Member, ...] = ()
    """The oldest first. Whoever is not listed has no requests here, route or not."""
    auth: Auth | None = None
    rate_limit: RateLimit | None = None
    """What one key may ask of all members together."""
    max_request_body_bytes: int | None = Field(default=None, ge=1)
    allowed_cidrs: tuple[str, ...] = ()
    settings: dict[str, Any] = Field(default_factory=dict)
    """The words in which every member has to say this; for the operator, agents don't read it."""

    @model_validator(mode="after")
    def _nobody_without(self) -> Self:
        unsaid = [each.name for each in self.members if each.access is None]
        if self.schema_version == 2 and unsaid:
            raise ValueError(f"members: {', '.join(unsaid)} have no access")
        if self.schema_version == 1 and len(unsaid) < len(self.members):
            raise ValueError("members: an access of their own is of schemaVersion 2")
        return self

    def access_of(self, member: Member) -> Access:
        """The member's own, or what all have together."""
        return member.access or Access(
            auth=self.auth,
            rate_limit=self.rate_limit,
            max_request_body_bytes=self.max_request_body_bytes,
            allowed_cidrs=self.allowed_cidrs,
        )


class ShadowState(_Lenient):
    """What Envoy says about the copies for one revision; counters since `envoy_started_at`."""

    percent: Percent
    """The final value that Envoy uses, read back."""
    active: Count
    """Copies in flight."""
    responses: dict[str, Count] = Field(default_factory=dict)
    """Answers by class, as in `ClusterState`; none of them reached a user."""
    skipped: Count = 0
    """Copies that were not made, as too many were in flight; not among `responses`."""
    cut: Count = 0
    """Copies whose worker broke off after its answer had begun."""


STRUCTURED: Final = "structured"
"""Kind of requests whose answer has to have a format: a schema, a grammar, a choice."""
TOOLS: Final = "tools"
"""Kind of requests that offer tools to call, and ask for no other format."""
REQUEST_KINDS: Final = (STRUCTURED, TOOLS)
"""Kinds that gateways tell apart: those that engines fail while they serve all others."""


class KindState(_Lenient):
    """Answers to one kind of requests."""

    responses: dict[str, Count] = Field(default_factory=dict)
    """By class, as in `ClusterState`."""
    cut: Count = 0
    """Answers that broke off."""


class ClusterState(_Lenient):
    """What Envoy itself says about one revision's cluster; counters since `envoy_started_at`."""

    hash: str
    weight: Percent
    """The final value that Envoy uses, read back; 0 when the route does not name it."""
    endpoints: Count
    """Endpoints Envoy would send to."""
    active: Count
    """Requests in flight (`upstream_rq_active`)."""
    responses: dict[str, Count] = Field(default_factory=dict)
    """Answers by class: `2xx`, `3xx`, `4xx`, `5xx`."""
    lane: str = "accelerated"
    """Or `native`."""
    shed: Count = 0
    """Requests that were refused because too many were in flight; not among `responses`."""
    cut: Count = 0
    """Requests whose upstream broke off after the response had begun."""
    kinds: dict[str, KindState] = Field(default_factory=dict)
    """The part of `responses` and `cut` that is of `REQUEST_KINDS`, by kind; copies have none."""
    shadow: ShadowState | None = None
    """While Envoy can send it copies; never among the figures above."""


class Activity(_Lenient):
    """When somebody last asked something of a worker here, as far as this agent knows."""

    since: Moment
    """Unix seconds since which it watches."""
    requested_at: Moment | None = None
    """At the latest then; None: nothing was asked since."""


class GatewayState(_Lenient):
    """One gateway pod, as read back from its Envoy a moment ago."""

    schema_version: Literal[1] = 1
    pod: str = ""
    envoy_started_at: Moment
    """Unix seconds: the reset mark of all counters."""
    sampled_at: Moment
    owner_uid: str = ""
    sequence: Annotated[int, Field(ge=-1, le=2**53)] = -1
    """Sequence of the route that was applied AND seen in Envoy; -1: none yet."""
    ready: bool = False
    clusters: tuple[ClusterState, ...] = ()
    """Every revision cluster Envoy knows, native included; a removed one is gone from here."""
    activity: Activity | None = None
    """None: an agent that does not know."""
    error: str = ""
    """Why the newest route was refused, if it was; the last good one stays in use."""
