"""Who may come through the gateway, how much each may ask for, and encryption."""

from typing import Annotated, Literal

from pydantic import Field

from speculative_api.base import Model, configuration, rule


class Jwt(Model):
    """Tokens of one issuer."""

    model_config = configuration(
        rule(
            "has(self.jwksUri) != has(self.jwksConfigMap)",
            "the issuer's public keys come from one place: set either jwksUri or jwksConfigMap",
        ),
    )
    issuer: str = Field(
        min_length=1, max_length=512, description="What claim iss of a token must be."
    )
    audiences: list[Annotated[str, Field(min_length=1, max_length=512)]] = Field(
        min_length=1,
        max_length=16,
        description="Claim aud of a token must have one of these.",
    )
    jwks_uri: str | None = Field(
        default=None,
        max_length=1024,
        pattern=r"^https://[^\s/@]+(/\S*)?$",
        description="Where the issuer's public keys are (JSON Web Key Set); each gateway pod "
        "fetches them every 5 minutes and goes on with the last ones while it can't.",
    )
    jwks_config_map: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="ConfigMap in this namespace with the public keys in entry jwks.json.",
    )
    client_claim: str = Field(
        default="sub",
        max_length=64,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="Claim that names the client, for the access log and for limits. Default sub.",
    )


class Auth(Model):
    """Who may send requests."""

    model_config = configuration(
        rule(
            "has(self.apiKeysSecret) != has(self.jwt)",
            "clients have either API keys or tokens: set either apiKeysSecret or jwt",
        ),
    )
    jwt: Jwt | None = Field(
        default=None,
        description="Clients send `Authorization: Bearer TOKEN`, a JSON Web Token that names this "
        "issuer and an audience and has not expired.",
    )
    api_keys_secret: str | None = Field(
        default=None,
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Secret in this namespace whose entries are API keys: the entry's name is the "
        "client's name in the access log, its value the key (8 to 1024 visible ASCII characters). "
        "Clients send it as `Authorization: Bearer KEY` or `x-api-key: KEY`. Changes take effect "
        "without a restart, as soon as the kubelet has updated the mounted Secret (about a minute "
        "and a half at most by default). While it is missing or empty, every request is refused.",
    )


class RateLimit(Model):
    """How much each API key, or each client named by a token, may ask for."""

    model_config = configuration(
        rule(
            "has(self.requestsPerMinutePerKey) || has(self.tokensPerMinutePerKey) || "
            "has(self.concurrentRequestsPerKey)",
            "rateLimit limits nothing: add requestsPerMinutePerKey, tokensPerMinutePerKey or "
            "concurrentRequestsPerKey",
        ),
    )
    requests_per_minute_per_key: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="Requests that each key may send in a minute, all gateway pods together; a "
        "key that was quiet may send them at once. Each of the n pods lets in one n-th, rounded "
        "up. Beyond it the answer is 429 with Retry-After.",
    )
    tokens_per_minute_per_key: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000_000,
        description="Tokens that each key may ask for in a minute, divided like requests. Charged "
        "before generation, and not corrected afterwards: a quarter of the body's bytes, plus "
        "max_tokens (max_completion_tokens, max_output_tokens) times n, or 1024 where the request "
        "does not say. A request above one pod's part is never let in. Bodies up to 16 MiB.",
    )
    concurrent_requests_per_key: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Requests that each key may have in flight, divided like requests; beyond it "
        "the answer is 429 with Retry-After. The gateway then runs with one Envoy thread, which "
        "can count; setting or removing it replaces the gateway's pods.",
    )


class Overload(Model):
    """When requests are refused instead of waiting."""

    max_queued_requests_per_pod: int = Field(
        ge=0,
        le=100_000,
        description="Requests that may wait for each ready worker pod, on top of the "
        "engine.maxNumSeqs that it runs at once, all gateway pods together. Beyond it the answer "
        "is 503 with Retry-After, and counts as nobody's error.",
    )


class Tls(Model):
    """Encryption between users and the gateway."""

    secret_name: str = Field(
        max_length=253,
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        description="Secret in this namespace with tls.crt and tls.key, as cert-manager writes it. "
        "A renewed one is taken without a restart once the kubelet has updated the mount (about a "
        "minute and a half at most by default). Gateway pods wait for the Secret to exist.",
    )
    min_version: Literal["1.2", "1.3"] = Field(
        default="1.2", description="Lowest TLS version. Default 1.2."
    )
