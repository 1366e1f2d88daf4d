"""How requests reach the pods at a Gateway of the Gateway API that is there already."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model

REVISION_IN_NAME = "{revision}"
"""Stands for a revision's hash, which has as many characters."""


class ParentRef(Model):
    """A Gateway of the Gateway API that is there already."""

    name: str = Field(
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Name of the Gateway.",
    )
    namespace: str | None = Field(
        default=None,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        description="Its namespace, which has to allow routes from here; this one when absent.",
    )
    section_name: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="One listener of it; every listener that lets the route in when absent.",
    )


class BackendKind(StrEnum):
    """What the route leads to."""

    SERVICE = "Service"
    INFERENCE_POOL = "InferencePool"


class PickerFailureMode(StrEnum):
    """What a Gateway does while the endpoint picker does not answer."""

    FAIL_OPEN = "FailOpen"
    FAIL_CLOSE = "FailClose"


class EndpointPickerRef(Model):
    """The Service of an endpoint picker in this namespace, one for each revision."""

    name: str = Field(
        max_length=63,
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?-\{revision\}(-[-a-z0-9]*[a-z0-9])?$",
        description="Name of the Service, with {revision} where the revision's hash comes, for "
        "instance chat-picker-{revision}: a picker serves one InferencePool, and each revision "
        "has one of its own.",
    )
    port: int = Field(
        default=9002, ge=1, le=65_535, description="Port of the Service. Default 9002."
    )
    failure_mode: PickerFailureMode = Field(
        default=PickerFailureMode.FAIL_CLOSE,
        description="While the picker does not answer: FailClose refuses requests, FailOpen lets "
        "the Gateway choose a pod. Default FailClose.",
    )

    def of(self, revision: str) -> str:
        """Name of the Service for a revision."""
        return self.name.replace(REVISION_IN_NAME, revision)
