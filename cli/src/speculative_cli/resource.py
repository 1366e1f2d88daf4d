"""A SpeculativeDeployment as the verbs and the screen see it. Pure.

Made from the raw object that the API server sends. Only the rollout is read
from the spec, so that a spec with newer fields elsewhere can still be shown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from speculative_api.revisions import canonical_words, words_hash
from speculative_api.v1alpha1 import (
    GatewayMode,
    PauseStep,
    Rollout,
    RolloutStep,
    SpeculativeDeploymentSpec,
    SpeculativeDeploymentStatus,
)

from .errors import CliError

DEFAULT_STEPS = (RolloutStep(weight=10), RolloutStep(pause=PauseStep(duration_seconds=300)))
"""What a rollout without steps does, as the description of `rollout.steps` says."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One object, parsed as far as needed."""

    namespace: str
    name: str
    generation: int
    rollout: Rollout
    status: SpeculativeDeploymentStatus
    method: str
    raw_status: dict[str, Any]
    raw_spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    uid: str = ""
    resource_version: str = ""

    @property
    def words(self) -> dict[str, Any] | None:
        """What the spec asks for, as a revision; None if this version can't read it."""
        try:
            return canonical_words(SpeculativeDeploymentSpec.model_validate(dict(self.raw_spec)))
        except ValidationError:
            return None

    @property
    def spec_hash(self) -> str | None:
        """The hash of `words`."""
        return None if self.words is None else words_hash(self.words)

    @property
    def shared_gateway(self) -> str:
        """Name of the gateway that it is at together with others; empty: it is at none such."""
        said = self.raw_spec.get("gateway") or {}
        shared = said.get("shared") if said.get("mode") == GatewayMode.SHARED else None
        return str((shared or {}).get("name", ""))

    @property
    def steps(self) -> tuple[RolloutStep, ...]:
        """The steps in force."""
        return tuple(self.rollout.steps) or DEFAULT_STEPS

    @property
    def step(self) -> RolloutStep | None:
        """The step the canary is in; None without a canary, before the first, after the last."""
        canary = self.status.canary
        if canary is None or not 0 <= canary.step < len(self.steps):
            return None
        return self.steps[canary.step]


def parse(raw: dict[str, Any]) -> Resource:
    """Reads a raw object.

    Raises:
        CliError: it has fields that this version does not know.
    """
    # Null where somebody else's tool wrote it out: as absent.
    metadata, spec, status = raw["metadata"], raw.get("spec") or {}, raw.get("status") or {}
    try:
        return Resource(
            namespace=metadata["namespace"],
            name=metadata["name"],
            generation=metadata.get("generation", 0),
            rollout=Rollout.model_validate(spec.get("rollout") or {}),
            status=SpeculativeDeploymentStatus.model_validate(status),
            method=(spec.get("speculation") or {}).get("method", "None"),
            raw_status=status,
            raw_spec=spec,
            annotations=metadata.get("annotations") or {},
            uid=metadata.get("uid", ""),
            resource_version=metadata.get("resourceVersion", ""),
        )
    except ValidationError as error:
        fields = ", ".join(".".join(str(part) for part in e["loc"]) for e in error.errors()[:3])
        raise CliError(
            f"{metadata['namespace']}/{metadata['name']}: this version of kubectl-speculative "
            f"can't read {fields}; upgrade it, or look with kubectl get -o yaml"
        ) from error
