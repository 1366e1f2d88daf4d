"""The routes' ConfigMaps and the workers' EndpointSlices, watched through the API.

Used by the agent in a pod. Rights needed: get, list, watch on the ConfigMaps (one by
`metadata.name`, or by label those of a shared gateway and its members) and on the
EndpointSlices of the namespace. A
list replaces the store, so that nothing that vanished while a watch was away
lives on. While the API can't be reached, the last observation stays.
"""

import asyncio
import json
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from speculative_api import gateway, labels

from .errors import GatewayError
from .render import Endpoint
from .secret_watch import Denied, SecretWatch
from .settings import Settings
from .source import Observation

_log = logging.getLogger("speculative_gateway.kubernetes")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
SERVICE_NAME = "kubernetes.io/service-name"
WATCH_SECONDS = 240
"""The server ends a watch after this; then it is listed again."""
SILENCE_SECONDS = 75
"""Bookmarks come once a minute: a longer silence is a dead connection."""
LIST_SECONDS = 15
_LISTED = {"configmap", "slices"}
"""Without them nothing is known."""
_KEYS = "keys of "
"""Begins the kind of each Secret."""
BACKOFF_SECONDS = (0.2, 1.0, 2.0, 5.0, 10.0)


class ApiError(GatewayError):
    """The API server refused, or ended a watch with an error."""


class Forbidden(ApiError):
    """This account lacks the right."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach the API server."""

    base: str
    token_file: Path | None = None
    """Read before every request: Kubernetes rotates it."""
    authority: Path | None = None
    """CA bundle; None speaks plain HTTP (tests)."""

    @classmethod
    def from_pod(cls, environment: Mapping[str, str]) -> "Cluster":
        """The in-cluster configuration.

        Raises:
            GatewayError: this is not a pod.
        """
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        if not host:
            raise GatewayError("KUBERNETES_SERVICE_HOST is not set: not in a pod")
        if ":" in host:
            host = f"[{host}]"
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        return cls(f"https://{host}:{port}", ACCOUNT / "token", ACCOUNT / "ca.crt")


class FromKubernetes:
    """A `Source` over two watches, and one on each Secret with keys where that is granted."""

    def __init__(self, settings: Settings, cluster: Cluster) -> None:
        self._cluster = cluster
        namespace = f"/namespaces/{settings.namespace}"
        self._secrets = f"/api/v1{namespace}/secrets"
        self._secret = SecretWatch()
        self._config_map = settings.route_config_map
        self._is_shared = bool(settings.shared_gateway)
        ours = {"labelSelector": f"{labels.SHARED_GATEWAY}={settings.shared_gateway}"}
        one = {"fieldSelector": f"metadata.name={settings.route_config_map}"}
        slices = {"labelSelector": f"{labels.NAME}={settings.name}"}
        self._kinds = {
            "configmap": (
                f"/api/v1{namespace}/configmaps",
                ours if self._is_shared else one,
            ),
            "slices": (
                f"/apis/discovery.k8s.io/v1{namespace}/endpointslices",
                ours if self._is_shared else slices,
            ),
        }
        self._stores: dict[str, dict[str, dict[str, Any]]] = {}

    async def watch(self, changed: Callable[[Observation], None]) -> None:
        """See `Source.watch`; the first call comes when both lists are in."""

        def look() -> None:
            if not self._stores.keys() >= _LISTED:
                return
            found = self._observation()
            self._secret.named(found.shared if self._is_shared else found.route)
            changed(replace(found, secrets=self._secret.entries))

        context = (
            ssl.create_default_context(cafile=str(self._cluster.authority))
            if self._cluster.authority
            else False
        )
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            asyncio.TaskGroup() as tasks,
        ):
            for kind in list(self._kinds):
                tasks.create_task(self._follow(session, kind, look))

            async def follow(name: str, store: Callable[[dict[str, Any] | None], None]) -> None:
                query = {"fieldSelector": f"metadata.name={name}"}
                self._kinds[_KEYS + name] = (self._secrets, query)
                await self._follow_secret(session, name, store)

            tasks.create_task(self._secret.run(follow, look))

    def _observation(self) -> Observation:
        config_maps = self._stores["configmap"]
        own = config_maps.get(self._config_map, {}).get("data", {})
        found = Observation(endpoints=endpoints_of(list(self._stores["slices"].values())))
        if not self._is_shared:
            return replace(found, route=own.get(gateway.ROUTE_KEY))
        ending = labels.MEMBER_ROUTE_SUFFIX
        routes = {
            name.removesuffix(ending): text
            for name, each in config_maps.items()
            if name.endswith(ending) and (text := each.get("data", {}).get(gateway.ROUTE_KEY))
        }
        return replace(found, shared=own.get(gateway.SHARED_KEY), routes=routes)

    async def _follow_secret(
        self,
        session: aiohttp.ClientSession,
        name: str,
        store: Callable[[dict[str, Any] | None], None],
    ) -> None:
        def seen() -> None:
            store(self._stores[_KEYS + name].get(name))

        await self._follow(session, _KEYS + name, seen)

    async def _follow(
        self, session: aiohttp.ClientSession, kind: str, look: Callable[[], None]
    ) -> None:
        failures = 0
        while True:
            try:
                version = await self._list(session, kind)
                look()
                failures = 0
                await self._stream(session, kind, version, look)
            except Forbidden as refusal:
                if kind.startswith(_KEYS):
                    raise Denied from refusal
                failures = await self._pause(kind, refusal, failures)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, ApiError) as error:
                failures = await self._pause(kind, error, failures)

    async def _pause(self, kind: str, error: Exception, failures: int) -> int:
        pause = BACKOFF_SECONDS[min(failures, len(BACKOFF_SECONDS) - 1)]
        _log.warning("watch kind=%s error=%r again_in=%.1fs", kind, error, pause)
        await asyncio.sleep(pause)
        return failures + 1

    async def _list(self, session: aiohttp.ClientSession, kind: str) -> str:
        """Replaces the store; returns the version to watch from."""
        timeout = aiohttp.ClientTimeout(total=LIST_SECONDS)
        async with session.get(self._url(kind), headers=self._headers(), timeout=timeout) as answer:
            text = await answer.read()
            if answer.status == 403:
                raise Forbidden(f"list {kind}: {_message(text)}")
            if answer.status != 200:
                raise ApiError(f"list {kind}: {answer.status} {_message(text)}")
        self._stores[kind], version = _listed(text, kind)
        return version

    async def _stream(
        self, session: aiohttp.ClientSession, kind: str, version: str, look: Callable[[], None]
    ) -> None:
        """Follows changes until the server ends the watch."""
        url = self._url(
            kind,
            watch="true",
            resourceVersion=version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(WATCH_SECONDS),
        )
        timeout = aiohttp.ClientTimeout(
            total=WATCH_SECONDS + SILENCE_SECONDS, sock_read=SILENCE_SECONDS, sock_connect=10
        )
        async with session.get(
            url, headers=self._headers(), timeout=timeout, read_bufsize=2**22
        ) as answer:
            if answer.status == 403:
                raise Forbidden(f"watch {kind}")
            if answer.status != 200:
                raise ApiError(f"watch {kind}: {answer.status}")
            async for line in answer.content:
                event, changed = _told(line, kind)
                if event == "BOOKMARK":
                    continue
                name = changed["metadata"]["name"]
                if event == "DELETED":
                    self._stores[kind].pop(name, None)
                else:
                    self._stores[kind][name] = changed
                look()

    def _url(self, kind: str, **query: str) -> str:
        path, selector = self._kinds[kind]
        return f"{self._cluster.base}{path}?{urlencode({**selector, **query})}"

    def _headers(self) -> dict[str, str]:
        if self._cluster.token_file is None:
            return {}
        return {"Authorization": f"Bearer {self._cluster.token_file.read_text().strip()}"}


def _message(text: bytes) -> str:
    """The API server's words about an error; empty where it is not the server that answers."""
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _listed(text: bytes, kind: str) -> tuple[dict[str, dict[str, Any]], str]:
    """Objects of a list, by name, and the version to watch from.

    Raises:
        ApiError: it is none, but a proxy's page or half of one.
    """
    try:
        body = json.loads(text)
        found = {each["metadata"]["name"]: each for each in body["items"] or ()}
        version: str = body["metadata"]["resourceVersion"]
    except (ValueError, KeyError, TypeError) as error:
        # Never its words, here and below: it may be half of a Secret.
        raise ApiError(f"list {kind}: {len(text)} bytes that are no list") from error
    return found, version


def _told(line: bytes, kind: str) -> tuple[str, dict[str, Any]]:
    """Type and object of an event that is no error.

    Raises:
        ApiError: it is one, or no event.
    """
    try:
        event = json.loads(line)
        what, changed = event["type"], event["object"]
        if what not in ("BOOKMARK", "ERROR"):
            changed["metadata"]["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise ApiError(f"watch {kind}: {len(line)} bytes that are no event") from error
    if what == "ERROR":
        said = changed.get("message", "") if isinstance(changed, dict) else ""
        raise ApiError(f"watch {kind}: {said}")
    return what, changed


def endpoints_of(slices: list[dict[str, Any]]) -> dict[str, tuple[Endpoint, ...]]:
    """Ready and not terminating addresses by Service name.

    A worker's ports are fixed by the contract, so the slices' own are not
    read. Slices of host names are left out: Envoy takes addresses only.
    """
    found: dict[str, set[Endpoint]] = {}
    for each in slices:
        service = each["metadata"].get("labels", {}).get(SERVICE_NAME, "")
        addresses = found.setdefault(service, set())
        if each.get("addressType") == "FQDN":
            continue
        for endpoint in each.get("endpoints") or []:
            conditions = endpoint.get("conditions", {})
            # By the API's words an absent `ready` means ready.
            if conditions.get("ready", True) and not conditions.get("terminating", False):
                addresses.update(Endpoint(address) for address in endpoint["addresses"])
    return {service: tuple(sorted(addresses)) for service, addresses in found.items()}
