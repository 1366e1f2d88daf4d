"""Whether the cluster's CRD is as new as this operator.

Read from the API server's published OpenAPI document, which every account may
read: no right on CRDs is needed. Called by `leading` before the operator works.
"""

from dataclasses import dataclass
from typing import Final

from speculative_api import labels
from speculative_api.differences import Missing, missing
from speculative_api.schema import Schema, custom_resource_definition
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import SPECULATIVE_DEPLOYMENT
from speculative_operator.errors import NotFound, Refused

_PATH: Final = f"/openapi/v3/apis/{labels.GROUP}/{labels.VERSION}"
_KIND: Final = {"group": labels.GROUP, "version": labels.VERSION, "kind": labels.KIND}
_PARTS: Final = ("spec", "status")


@dataclass(frozen=True, slots=True)
class Findings:
    """What the live CRD lacks; `unknown` says why that can't be told."""

    spec: tuple[Missing, ...] = ()
    status: tuple[Missing, ...] = ()
    unknown: str = ""

    @property
    def is_current(self) -> bool:
        """Whether nothing is missing, as far as can be told."""
        return not self.spec and not self.status

    def sentence(self, remedy: str) -> str:
        """What is missing, what follows, and the command that mends it."""
        if self.is_current:
            return ""
        names = ", ".join(str(each) for each in (*self.status, *self.spec))
        follows = (
            "status could not be kept, so nothing is done"
            if self.status
            else "users' values for these fields are dropped by the API server"
        )
        return f"the CRD is older than this operator and lacks {names}: {follows}. Run: {remedy}"


async def compare(client: Client) -> Findings:
    """Compares the live schema with the one built in.

    Raises:
        Unavailable: the API server did not answer.
    """
    needed = _root()
    try:
        _, document = await client.request("get", SPECULATIVE_DEPLOYMENT, "GET", _PATH)
    except NotFound:
        live: Schema | None = {}
    except Refused as error:
        return Findings(unknown=str(error))
    else:
        live = _published(document)
    if live is None:
        return Findings(unknown=f"{_PATH} does not describe {labels.KIND}")
    found = {part: tuple(missing(_part(needed, part), _part(live, part), part)) for part in _PARTS}
    return Findings(found["spec"], found["status"])


def _root() -> Schema:
    (version,) = custom_resource_definition()["spec"]["versions"]
    root: Schema = version["schema"]["openAPIV3Schema"]
    return root


def _part(schema: Schema, part: str) -> Schema:
    found: Schema = schema.get("properties", {}).get(part, {})
    return found


def _published(document: Schema) -> Schema | None:
    for schema in document.get("components", {}).get("schemas", {}).values():
        if _KIND in schema.get("x-kubernetes-group-version-kind", ()):
            found: Schema = schema
            return found
    return None
