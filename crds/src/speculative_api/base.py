"""What the types of the resource are made of: `Model` and its CEL rules."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


def rule(expression: str, message: str, field_path: str | None = None) -> dict[str, str]:
    """A CEL rule of the structural schema (`x-kubernetes-validations`)."""
    found = {"rule": expression, "message": message}
    return found | ({"fieldPath": field_path} if field_path else {})


def configuration(*rules: dict[str, str]) -> ConfigDict:
    """What every type of the resource has in common, with its CEL rules."""
    extra: dict[str, Any] = {"x-kubernetes-validations": list(rules)} if rules else {}
    return ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        json_schema_extra=extra,
    )


class Model(BaseModel):
    """Base of every type in the resource: camelCase outside, frozen, unknown fields refused."""

    model_config = configuration()
