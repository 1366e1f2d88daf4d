"""How traffic reaches the workers: lanes and the gateway."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.gateway_access import Auth, Overload, RateLimit, Tls
from speculative_api.v1alpha1.gateway_api import BackendKind, EndpointPickerRef, ParentRef


class NativeLane(Model):
    """The same target without speculation, reached by header `x-speculative-lane: native`."""

    model_config = configuration(
        rule(
            "!self.fallback || self.replicas > 0",
            "fallback needs native pods to fall back to: set lanes.native.replicas to 1 or more",
            ".fallback",
        ),
    )
    replicas: int = Field(
        default=0, ge=0, le=1000, description="Native pods; 0 means no native lane. Default 0."
    )
    fallback: bool = Field(
        default=False,
        description="Whether stable's requests go to native while stable has no healthy pod: at "
        "most engine.maxNumSeqs at a time for each ready native pod, the others get 503 with "
        "Retry-After. A canary's requests never do. Default false.",
    )


class LaneHeader(Model):
    """A request header and its value."""

    name: str = Field(
        max_length=64,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Name of the header, for instance x-tier; case does not matter.",
    )
    value: str = Field(
        max_length=256, pattern=r"^[!-~]([ -~]*[!-~])?$", description="Its exact value."
    )


class LaneRule(Model):
    """Which requests go to which lane."""

    model_config = configuration(
        rule(
            "has(self.path) || has(self.header) || has(self.model) || has(self.percent)",
            "a rule says which requests: add path, header, model or percent (100 for all)",
        ),
    )
    lane: Literal["accelerated", "native"] = Field(description="Where they go.")
    path: str | None = Field(
        default=None,
        max_length=256,
        pattern=r"^/v1(/[A-Za-z0-9._~-]+)+$",
        description="This path and everything under it, for instance /v1/embeddings.",
    )
    header: LaneHeader | None = Field(
        default=None, description="Requests with exactly this value of a header."
    )
    model: str | None = Field(
        default=None,
        max_length=256,
        pattern=r"^[!-~]+$",
        description="Requests whose header x-model has this value. The gateway does not read the "
        "`model` in the body: for that it would have to hold every body until it is whole.",
    )
    percent: int | None = Field(
        default=None,
        ge=1,
        le=100,
        description="By chance, so many of the requests that no earlier rule took.",
    )


class Lanes(Model):
    """Ways through the gateway beside the accelerated one."""

    model_config = configuration(
        rule(
            "!has(self.rules) || self.rules.all(r, r.lane != 'native') || "
            "(has(self.native) && self.native.replicas > 0)",
            "a rule leads to the native lane, which has no pods: set lanes.native.replicas to 1 or "
            "more",
            ".rules",
        ),
    )
    native: NativeLane = Field(
        default_factory=NativeLane, description="The lane without speculation."
    )
    rules: list[LaneRule] = Field(
        default_factory=list,
        max_length=32,
        description="Which requests go to which lane; the first rule of which all parts hold "
        "decides. A request that names a lane in header x-speculative-lane gets that one. Without "
        "a rule that holds: accelerated.",
    )


class GatewayService(Model):
    """The Service in front of the gateway."""

    model_config = configuration(
        rule(
            "self.type == 'LoadBalancer' || !has(self.loadBalancerSourceRanges) || "
            "size(self.loadBalancerSourceRanges) == 0",
            "loadBalancerSourceRanges needs a load balancer: set type LoadBalancer",
            ".loadBalancerSourceRanges",
        ),
    )
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = Field(
        default="ClusterIP", description="Service type. Default ClusterIP."
    )
    annotations: dict[str, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict, description="Annotations of the Service."
    )
    load_balancer_source_ranges: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list,
        max_length=64,
        description="Client address ranges a load balancer lets in.",
    )


class Timeouts(Model):
    """Timeouts at the gateway, in seconds."""

    request_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="Longest whole request; 0 switches it off. Default 0: a default timeout would "
        "cut long answers.",
    )
    idle_seconds: int = Field(
        default=300,
        ge=1,
        le=86_400,
        description="Longest silence on a stream, the wait for the first token included. "
        "Default 300.",
    )


class GatewayMode(StrEnum):
    """Who sends users' requests to the pods."""

    ENVOY = "Envoy"
    SHARED = "Shared"
    GATEWAY_API = "GatewayAPI"
    NONE = "None"

    @property
    def splits(self) -> bool:
        """Whether revisions can have weights."""
        return self is not GatewayMode.NONE

    @property
    def reads_back(self) -> bool:
        """Whether gateways of ours say what they really use."""
        return self in (GatewayMode.ENVOY, GatewayMode.SHARED)


WITHOUT_GATEWAY = ("mode", "service")
"""The fields of `gateway` that mean something in mode None."""
WITH_GATEWAY_API = ("backend", "endpointPickerRef", "hosts", "mode", "parentRef", "timeouts")
"""The fields of `gateway` that mean something in mode GatewayAPI."""


class Shared(Model):
    """A gateway that serves several SpeculativeDeployments."""

    name: str = Field(
        max_length=40,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$",
        description="Its name: users ask the Service NAME-gateway of this namespace. Whoever says "
        "the same name is at the same gateway.",
    )


SHARED_SETTINGS = (
    "replicas",
    "service",
    "tls",
    "trusted_proxy_hops",
)
"""The fields of `gateway` that are a shared gateway's and that its members have to say alike."""
MEMBER_SETTINGS = ("auth", "rate_limit", "allowed_cidrs", "max_request_body_bytes")
"""The fields that the gateway does for each member as that one says."""


class Gateway(Model):
    """How traffic reaches the workers."""

    model_config = configuration(
        rule(
            "self.mode in ['Envoy', 'Shared'] || (!has(self.auth) && !has(self.rateLimit) && "
            "!has(self.sessionAffinityHeader) && !has(self.maxRequestBodyBytes) && "
            "!has(self.tls) && !has(self.overload) && self.revisionHeaders && "
            "!has(self.allowedCidrs) && self.trustedProxyHops == 0 && self.replicas == 1)",
            "only a gateway of mode Envoy or Shared does this: leave out auth, rateLimit, tls, "
            "overload, allowedCidrs, trustedProxyHops, sessionAffinityHeader, "
            "maxRequestBodyBytes, revisionHeaders and replicas, or use mode Envoy",
            ".mode",
        ),
        rule(
            "self.mode != 'None' || !has(self.hosts) || size(self.hosts) == 0",
            "without a gateway every host name leads to stable: leave hosts out",
            ".hosts",
        ),
        rule(
            "self.mode != 'None' || !has(self.timeouts)",
            "without a gateway there are no timeouts: leave them out, or use mode Envoy",
            ".timeouts",
        ),
        rule(
            "self.mode != 'GatewayAPI' || !has(self.timeouts) || self.timeouts.idleSeconds == 300",
            "an HTTPRoute has no idle timeout: leave idleSeconds out and set it at your Gateway",
            ".timeouts.idleSeconds",
        ),
        rule(
            "self.mode != 'GatewayAPI' || !has(self.service)",
            "with mode GatewayAPI users reach your Gateway, and no Service is made: leave it out",
            ".service",
        ),
        rule(
            "(self.mode == 'GatewayAPI') == has(self.parentRef)",
            "mode GatewayAPI needs parentRef, the Gateway that the route belongs to, and no other "
            "mode has it",
            ".parentRef",
        ),
        rule(
            "self.mode == 'GatewayAPI' || self.backend == 'Service'",
            "only an HTTPRoute can lead to an InferencePool: leave backend out, or use mode "
            "GatewayAPI",
            ".backend",
        ),
        rule(
            "(self.backend == 'InferencePool') == has(self.endpointPickerRef)",
            "backend InferencePool needs endpointPickerRef, the Service of each revision's "
            "endpoint picker, without which nobody chooses a pod; no other backend has it",
            ".endpointPickerRef",
        ),
        rule(
            "(self.mode == 'Shared') == has(self.shared)",
            "mode Shared needs shared.name, the gateway that several resources have together, and "
            "no other mode has it",
            ".shared",
        ),
        rule(
            "!has(self.rateLimit) || has(self.auth)",
            "rateLimit counts by API key: add gateway.auth.apiKeysSecret or gateway.auth.jwt",
            ".rateLimit",
        ),
    )
    mode: GatewayMode = Field(
        default=GatewayMode.ENVOY,
        description="Envoy: a gateway of this resource's own. Shared: one that several resources "
        "of the namespace have together; a request says which in its path, in header x-model or by "
        "its host. GatewayAPI: an HTTPRoute at your "
        "Gateway; what that really uses can't be seen, so a weight counts 30 s after it was "
        "accepted. None: no gateway, the Service leads to the pods of stable; a rollout then has "
        "no weights, only pauses. Default Envoy.",
    )
    hosts: list[
        Annotated[
            str,
            Field(
                max_length=253,
                pattern=r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            ),
        ]
    ] = Field(
        default_factory=list,
        max_length=16,
        description="Host names that are served, for instance chat.example.com or *.example.com; "
        "any other is answered 404, the Service's own name included. Ports don't matter. Every "
        "name when empty. With mode Shared: names under which requests are this resource's, beside "
        "its name in the path or in x-model; of two resources that say one, the first has it.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    parent_ref: ParentRef | None = Field(
        default=None, description="With mode GatewayAPI: the Gateway that the route belongs to."
    )
    backend: BackendKind = Field(
        default=BackendKind.SERVICE,
        description="With mode GatewayAPI, what the route leads to: a Service of each revision, or "
        "an InferencePool of each (Gateway API Inference Extension, inference.networking.k8s.io/"
        "v1), whose endpoint picker chooses the pod. Default Service.",
    )
    endpoint_picker_ref: EndpointPickerRef | None = Field(
        default=None,
        description="With backend InferencePool: who chooses the pods of a revision. You run it; a "
        "revision gets no weight before the Gateway has accepted its pool and found its picker.",
    )
    shared: Shared | None = Field(
        default=None,
        description="With mode Shared: the gateway that it is at. Of the settings here, replicas, "
        "service, tls and trustedProxyHops are the gateway's: its members say them alike, and a "
        "change counts once all of them say it. All others are each member's own; of members with "
        "the same auth and rateLimit, a key's limits count over all of them.",
    )
    replicas: int = Field(default=1, ge=1, le=32, description="Gateway pods. Default 1.")
    service: GatewayService = Field(
        default_factory=GatewayService, description="The Service in front of the gateway."
    )
    timeouts: Timeouts = Field(default_factory=Timeouts, description="Timeouts in seconds.")
    auth: Auth | None = Field(
        default=None, description="Who may send requests; everybody who can connect when absent."
    )
    session_affinity_header: str | None = Field(
        default=None,
        max_length=64,
        pattern=r"^[A-Za-z0-9-]+$",
        description="Request header that names a session, for instance x-session-id: all its "
        "requests go to one revision, and one that is on the canary stays there while the weight "
        "grows. Each canary gets other sessions. Requests without the header are split by chance. "
        "A canary is then judged on the sessions it happened to get; absent, on single requests.",
    )
    max_request_body_bytes: int | None = Field(
        default=None,
        ge=1024,
        le=33_554_432,
        description="Longest request body in bytes; a longer one is answered 413 and reaches no "
        "worker. The gateway then holds each body until it is whole. No limit when absent, but 16 "
        "MiB at most where tokensPerMinutePerKey is set.",
    )
    rate_limit: RateLimit | None = Field(
        default=None, description="How much each API key may ask for; no limit when absent."
    )
    allowed_cidrs: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list,
        max_length=256,
        description="Client address ranges that may send requests, for instance 10.0.0.0/8; others "
        "get 403. Everybody when empty. The address is what the gateway sees, which behind a "
        "Service may be a node's: see docs/gateway.md.",
    )
    trusted_proxy_hops: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Proxies in front of the gateway that each add the address they saw to "
        "x-forwarded-for: the client is taken to be that many from its end. Default 0: the header "
        "is not believed. A change replaces the gateway's pods.",
    )
    tls: Tls | None = Field(
        default=None,
        description="Encryption: the Service then has port 443 (https) instead of 80, and HTTP/2 "
        "is offered. A change replaces the gateway's pods. Plain HTTP when absent.",
    )
    overload: Overload | None = Field(
        default=None,
        description="When requests are refused instead of waiting; never when absent.",
    )
    revision_headers: bool = Field(
        default=True,
        description="Whether answers say in x-speculative-revision and x-speculative-lane where "
        "they come from. Default true.",
    )

    @property
    def shared_name(self) -> str:
        """Name of the shared gateway that it is at; empty with every other mode."""
        return self.shared.name if self.mode is GatewayMode.SHARED and self.shared else ""
