"""The engine and how it is started."""

from typing import Annotated, Literal

from pydantic import Field

from speculative_api.base import Model
from speculative_api.v1alpha1.simulation import Simulation as Simulation


class Warmup(Model):
    """Real requests sent to the engine before the pod becomes ready."""

    requests: int = Field(default=4, ge=0, le=64, description="How many; 0 skips. Default 4.")
    prompt_tokens: int = Field(
        default=128, ge=1, le=8192, description="Approximate prompt length. Default 128."
    )
    output_tokens: int = Field(
        default=64, ge=1, le=1024, description="Tokens generated each. Default 64."
    )


class WorkerTls(Model):
    """Encryption between the gateway and the engine."""

    secret_name: str = Field(
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Secret in this namespace with tls.crt, tls.key and ca.crt, as cert-manager "
        "writes it. The pods get all of it, the gateway only ca.crt. Pods wait for the Secret to "
        "exist.",
    )
    server_name: str = Field(
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        description="DNS name that the certificate has to be for. Pods are reached by address, so "
        "any name will do that only they have a certificate for.",
    )


class Engine(Model):
    """The inference engine and how it is started."""

    image: str | None = Field(
        default=None,
        max_length=512,
        min_length=1,
        description="Worker image (vLLM plus our worker). The operator's own default when "
        "absent; pin it to a digest in production.",
    )
    version: str = Field(
        default="0.32.0",
        max_length=64,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$",
        description="vLLM version inside the image; decides flags and metric names. Known are 0.6 "
        "and 0.8 to 0.33. Default 0.32.0.",
    )
    allow_unknown_version: bool = Field(
        default=False,
        description="Let a version run that is not in the table, with the flags of the nearest "
        "older one. Default false: it is refused.",
    )
    max_num_seqs: int = Field(
        default=64, ge=1, le=65_536, description="Largest batch, in sequences. Default 64."
    )
    gpu_memory_utilization_percent: int = Field(
        default=90,
        ge=1,
        le=99,
        description="Share of each GPU's memory the engine may take. Default 90.",
    )
    extra_args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=64,
        description="Further engine flags, one list item each. A flag that a field here already "
        "sets is refused.",
    )
    startup_deadline_seconds: int = Field(
        default=1800,
        ge=5,
        le=86_400,
        description="Longest time from container start to ready, weights included. Default 1800.",
    )
    drain_seconds: int = Field(
        default=120,
        ge=0,
        le=7200,
        description="How long a stopping pod lets running generations finish. Generations "
        "shorter than this are never cut. Default 120.",
    )
    preflight: Literal["Refuse", "Warn"] = Field(
        default="Refuse",
        description="What a pod does when the files of draft, target and GPU do not fit: Refuse "
        "ends it with the reason before the engine starts; Warn says it in the log and lets the "
        "engine try. Missing files always end it. Default Refuse.",
    )
    heartbeat_seconds: int = Field(
        default=0,
        ge=0,
        le=3600,
        description="An engine without work for this long gets a request of one token, so that a "
        "dead one is found before a user does; not counted as traffic. Default 0: none.",
    )
    tls: WorkerTls | None = Field(
        default=None,
        description="The engine speaks TLS, and the gateway sends nothing to one without a "
        "certificate of this authority and name. Needs gateway.mode Envoy. Plain HTTP when absent.",
    )
    warmup: Warmup = Field(
        default_factory=Warmup, description="Requests before the pod becomes ready."
    )
    simulation: Simulation | None = Field(
        default=None,
        description="Replaces vLLM by a simulated engine, for rehearsing rollouts; such pods ask "
        "for no GPU.",
    )
