"""One key of one Secret, read where the namespace's own Role lets the operator.

The chart gives no right to read Secrets. Called by `metrics.prometheus` through
`__main__`. What is read appears in no log, event or message.
"""

import base64
import binascii
from collections.abc import Awaitable, Callable

from speculative_api.v1alpha1 import SecretKey
from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import SECRET
from speculative_operator.errors import ApiError, NotFound, NotReadable, Refused


def secret_reader(client: Client) -> Callable[[str, SecretKey], Awaitable[str]]:
    """Reads the text of a key; every error says what to do, in words that may be shown."""

    async def read(namespace: str, wanted: SecretKey) -> str:
        place = f"Secret {wanted.name}"
        try:
            found = await client.get(SECRET, namespace, wanted.name)
        except NotFound as error:
            raise NotReadable(f"{place} does not exist in namespace {namespace}") from error
        except Refused as error:
            remedy = "bind a Role that lets it get this Secret (docs/analysis.md)"
            raise NotReadable(f"the operator may not read {place}: {remedy}") from error
        except ApiError as error:
            raise NotReadable(f"{place} can not be read ({error.status})") from error
        text = (found.get("data") or {}).get(wanted.key)
        if text is None:
            raise NotReadable(f"{place} has no key {wanted.key}")
        try:
            return base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError) as error:
            raise NotReadable(f"{place}, key {wanted.key}: no text") from error

    return read
