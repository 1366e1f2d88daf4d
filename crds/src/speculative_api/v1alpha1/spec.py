"""The whole spec, and which part of it makes a revision."""

from pydantic import Field

from speculative_api.base import Model, configuration, rule
from speculative_api.v1alpha1.autoscaling import Autoscaling
from speculative_api.v1alpha1.engine import Engine
from speculative_api.v1alpha1.gateway import Gateway, GatewayMode, Lanes
from speculative_api.v1alpha1.pod import ModelCache, Pod
from speculative_api.v1alpha1.rollout import Rollout
from speculative_api.v1alpha1.speculation import Speculation
from speculative_api.v1alpha1.target import Target

_IS_OURS = "!has(self.gateway) || self.gateway.mode != 'GatewayAPI'"
_READS_BACK = (
    f"!has(self.gateway) || self.gateway.mode in {[m.value for m in GatewayMode if m.reads_back]}"
)
_HAS_GATEWAY = "!has(self.gateway) || self.gateway.mode != 'None'"


class SpeculativeDeploymentSpec(Model):
    """Which target, which draft, how pods look, how traffic reaches them, how a change is tried."""

    model_config = configuration(
        rule(
            "!has(self.rollout) || self.rollout.download != 'Job' || has(self.modelCache)",
            "a Job fetches models into a claim that the pods share: add "
            "modelCache.persistentVolumeClaim, or leave rollout.download out",
            ".rollout.download",
        ),
        rule(
            f"{_HAS_GATEWAY} || !has(self.rollout) || !has(self.rollout.steps) || "
            "self.rollout.steps.all(s, has(s.pause))",
            "without a gateway nothing can split traffic: use pauses only, or gateway.mode Envoy",
            ".rollout.steps",
        ),
        rule(
            f"{_IS_OURS} || !has(self.rollout) || !has(self.rollout.steps) || "
            "self.rollout.steps.all(s, !has(s.shadow))",
            "an HTTPRoute can't bound the copies of a shadow step, nor say when the last one "
            "ended: leave it out, or use gateway.mode Envoy",
            ".rollout.steps",
        ),
        rule(
            f"{_HAS_GATEWAY} || !has(self.rollout) || !has(self.rollout.guard) || "
            "self.rollout.guard.holdbackWeight == 5",
            "without a gateway the old revision can't keep a share: leave holdbackWeight out",
            ".rollout.guard.holdbackWeight",
        ),
        rule(
            f"{_READS_BACK} || !has(self.rollout) || "
            "(self.rollout.capacity == 'Surge' && !self.rollout.dynamicStable)",
            "capacity InPlace and dynamicStable take pods away from traffic that was seen to have "
            "moved: they need gateway.mode Envoy",
            ".rollout.capacity",
        ),
        rule(
            f"{_HAS_GATEWAY} || !has(self.lanes) || !has(self.lanes.native) || "
            "self.lanes.native.replicas == 0",
            "without a gateway nobody can choose the native lane: leave it out, or use "
            "gateway.mode Envoy",
            ".lanes.native.replicas",
        ),
        rule(
            f"{_HAS_GATEWAY} || !has(self.lanes) || !has(self.lanes.rules) || "
            "size(self.lanes.rules) == 0",
            "without a gateway nothing follows rules: leave lanes.rules out, or use gateway.mode "
            "Envoy",
            ".lanes.rules",
        ),
        rule(
            f"{_IS_OURS} || !has(self.lanes) || ((!has(self.lanes.rules) || "
            "size(self.lanes.rules) == 0) && (!has(self.lanes.native) || "
            "!self.lanes.native.fallback))",
            "an HTTPRoute has no rules in order and no fallback: leave lanes.rules and "
            "lanes.native.fallback out, or use gateway.mode Envoy",
            ".lanes",
        ),
        rule(
            f"{_HAS_GATEWAY} || !has(self.rollout) || !has(self.rollout.drift) || "
            "self.rollout.drift.action != 'DisableSpeculation'",
            "without a gateway no traffic can be moved to pods without speculation: use action "
            "Alert or RecyclePods, or gateway.mode Envoy",
            ".rollout.drift.action",
        ),
        rule(
            "!has(self.rollout) || !has(self.rollout.drift) || !has(self.speculation.adaptive) || "
            "self.speculation.adaptive.mode == 'Off'",
            "adaptive draft lengths change the tokens per step with the load, which would look "
            "like drift: leave rollout.drift out, or set speculation.adaptive.mode Off",
            ".rollout.drift",
        ),
        rule(
            f"({_READS_BACK}) || !has(self.engine) || !has(self.engine.tls)",
            "only a gateway of mode Envoy or Shared speaks TLS to engines: leave engine.tls out, "
            "or use gateway.mode Envoy",
            ".engine.tls",
        ),
        rule(
            "self.target.nodesPerReplica == 1 || !has(self.pod) || !has(self.pod.spot)",
            "an eviction of one pod ends its whole group, and a group can't be divided: leave "
            "pod.spot out, or set target.nodesPerReplica 1",
            ".pod.spot",
        ),
    )
    replicas: int = Field(
        default=1,
        ge=0,
        le=1000,
        description="Worker pods of the stable revision; with target.nodesPerReplica above 1 "
        "groups of pods. Written by `kubectl scale` too. Default 1.",
    )
    target: Target = Field(description="The model whose output users get.")
    speculation: Speculation = Field(description="How tokens are drafted and verified.")
    engine: Engine = Field(default_factory=Engine, description="The engine and how it is started.")
    pod: Pod = Field(default_factory=Pod, description="How worker pods look to Kubernetes.")
    model_cache: ModelCache | None = Field(
        default=None, description="Where fetched models (hf://, s3://) are kept between pods."
    )
    lanes: Lanes = Field(default_factory=Lanes, description="Lanes beside the accelerated one.")
    gateway: Gateway = Field(default_factory=Gateway, description="How traffic reaches workers.")
    autoscaling: Autoscaling | None = Field(
        default=None,
        description="Pods by load instead of a fixed number. Absent: replicas pods.",
    )
    rollout: Rollout = Field(default_factory=Rollout, description="How a new revision is tried.")


REVISIONED_FIELDS = ("target", "speculation", "engine", "pod", "model_cache")
"""The part of the spec whose change makes a new revision."""
