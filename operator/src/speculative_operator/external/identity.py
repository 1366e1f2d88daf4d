"""Who asks, and whether they may: the front proxy's certificate, then the API server's word.

The API server connects with a client certificate and names the user in headers.
Anybody else who reaches the port could write the same headers, so they count only
behind a certificate that the front-proxy authority signed for an allowed name.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from speculative_operator.cluster.client import Client
from speculative_operator.cluster.resources import CONFIG_MAP, JSON, Resource
from speculative_operator.errors import NotReadable

ACCESS_REVIEW: Final = Resource(
    "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews"
)
REMEMBERED_SECONDS: Final = 30.0
"""An answer of the API server holds so long; a right taken away lives on as long."""
MOST_REMEMBERED: Final = 4096


@dataclass(frozen=True, slots=True)
class FrontProxy:
    """What ConfigMap kube-system/extension-apiserver-authentication says about the proxy."""

    authority: str
    """PEM of the authorities of its client certificate."""
    allowed_names: frozenset[str]
    """Common names it may have; empty: any."""
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)

    def trusts(self, certificate: Mapping[str, Any] | None) -> bool:
        """Whether a verified client certificate (as `ssl` gives it) is the proxy's."""
        if not certificate:
            return False
        names = {
            value
            for part in certificate.get("subject", ())
            for key, value in part
            if key == "commonName"
        }
        return bool(names) and (not self.allowed_names or bool(names & self.allowed_names))


async def front_proxy(client: Client) -> FrontProxy:
    """Reads it.

    Raises:
        NotReadable: the API server has no front proxy configured.
        ApiError: it can't be read.
    """
    thing = await client.get(CONFIG_MAP, "kube-system", "extension-apiserver-authentication")
    data: Mapping[str, str] = thing.get("data") or {}
    authority = data.get("requestheader-client-ca-file", "")
    if not authority:
        raise NotReadable("the API server has no requestheader-client-ca-file: no aggregation")
    return FrontProxy(
        authority=authority,
        allowed_names=frozenset(_listed(data, "requestheader-allowed-names")),
        user_headers=_listed(data, "requestheader-username-headers") or ("X-Remote-User",),
        group_headers=_listed(data, "requestheader-group-headers") or ("X-Remote-Group",),
    )


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        found = json.loads(data.get(key) or "[]")
    except ValueError:
        return ()
    return tuple(str(item) for item in found) if isinstance(found, list) else ()


@dataclass(frozen=True, slots=True)
class User:
    """Whom the front proxy names."""

    name: str
    groups: tuple[str, ...] = ()


@dataclass(slots=True)
class Reviewer:
    """Asks the API server whether a user may read a metric; remembers the answer for a while."""

    client: Client
    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[User, str, str], tuple[float, bool]] = field(default_factory=dict)

    async def may_read(self, user: User, namespace: str, metric: str) -> bool:
        """Whether the user may `list` this metric in the namespace.

        Raises:
            ApiError: the API server does not say; the caller refuses then.
        """
        place, now = (user, namespace, metric), self.clock()
        known = self._known.get(place)
        if known is not None and now - known[0] < REMEMBERED_SECONDS:
            return known[1]
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        allowed = await self._ask(user, namespace, metric)
        self._known[place] = (now, allowed)
        return allowed

    async def _ask(self, user: User, namespace: str, metric: str) -> bool:
        body: JSON = {
            "apiVersion": ACCESS_REVIEW.api_version,
            "kind": ACCESS_REVIEW.kind,
            "spec": {
                "user": user.name,
                "groups": list(user.groups),
                "resourceAttributes": {
                    "group": "external.metrics.k8s.io",
                    "version": "v1beta1",
                    "resource": metric,
                    "namespace": namespace,
                    "verb": "list",
                },
            },
        }
        _, answer = await self.client.request(
            "review", ACCESS_REVIEW, "POST", ACCESS_REVIEW.path(), body=body
        )
        return answer.get("status", {}).get("allowed") is True
