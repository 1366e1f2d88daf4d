"""Kinds of text that several parts of the spec share."""

from typing import Annotated, Any

from pydantic import Field

ModelSource = Annotated[
    str,
    Field(
        pattern=r"^(hf://[^/@\s]+/[^/@\s]+(@\S+)?|file:///\S+|pvc://[a-z0-9.-]+/\S+"
        r"|oci://[^\s/]+(/[^\s/]+)+(//\S+)?|s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
        r"(/\S*|@[0-9a-f]{40})?)$",
        max_length=512,
    ),
]
Percent = Annotated[int, Field(ge=0, le=100)]
Opaque = Annotated[
    dict[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})
]
Quantity = Annotated[str, Field(pattern=r"^[0-9]{1,12}(\.[0-9]{1,9})?$", max_length=24)]
"""A number as text, as elsewhere in Kubernetes: floats do not survive every client."""
SignedQuantity = Annotated[str, Field(pattern=r"^-?[0-9]{1,12}(\.[0-9]{1,9})?$", max_length=25)]
"""The same, negative too."""
MetricLabel = Annotated[
    str, Field(pattern=r"^([A-Z][A-Za-z]+|[a-z]([-a-z0-9]*[a-z0-9])?)$", max_length=63)
]
"""Name of a metric: CamelCase where it is measured anyway, a DNS label where it is a query."""
