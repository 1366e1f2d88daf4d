"""A thin client of the API server on aiohttp: JSON in, JSON out, every request timed.

Called by the reflectors, the lease and the pass. It knows no kinds beyond
`resources`, keeps no state and retries nothing: retrying is the queue's job.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import ContextVar
from typing import Final, Self

import aiohttp
import orjson

from speculative_api.labels import MANAGER
from speculative_operator.cluster.access import Access
from speculative_operator.cluster.connector import AskingConnector, lines_of
from speculative_operator.cluster.resources import (
    EVENT,
    JSON,
    LEASE,
    SPECULATIVE_DEPLOYMENT,
    Resource,
)
from speculative_operator.cluster.wire import (
    decoded,
    error_of,
    event_of,
    page_of,
    replacing,
    selecting,
)
from speculative_operator.errors import (
    ApiError,
    Conflict,
    NotFound,
    Silent,
    Unavailable,
)

APPLY_PATCH: Final = "application/apply-patch+yaml"
MERGE_PATCH: Final = "application/merge-patch+json"

_QUESTIONS: Final = frozenset({"review"})
"""Verbs that change nothing although they are POSTs."""

Observer = Callable[[str, str, int], None]
"""Told of every answered request: verb, kind, HTTP status (0: no answer)."""

Fence = Callable[[], bool]
"""Whether writes may leave at this very moment."""


def _ignore(verb: str, kind: str, status: int) -> None:
    del verb, kind, status


def _open_fence() -> bool:
    return True


class Client:
    """One connection pool; `async with` closes it.

    Every call raises `ApiError` or one of its subclasses.
    """

    def __init__(
        self, access: Access, *, timeout_seconds: float = 15.0, observe: Observer = _ignore
    ) -> None:
        self._access = access
        self._timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        self._observe = observe
        self.fence: Fence = _open_fence
        """Asked right before a write is sent; writes to Leases are exempt, they are the fence."""
        self._fenced: ContextVar[bool] = ContextVar("fenced", default=False)
        """Whether the request of this task is one of those."""
        self._session: aiohttp.ClientSession | None = None
        self._connector: AskingConnector | None = None

    async def __aenter__(self) -> Self:
        self._connector = AskingConnector(self._ask_fence, limit=64)
        self._session = aiohttp.ClientSession(
            connector=self._connector, cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    def _ask_fence(self) -> None:
        if self._fenced.get() and not self.fence():
            raise Unavailable("not sent: the Lease is not held")

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None and self._connector is not None:
            await self._session.close()
            await self._connector.ended()

    async def _open(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None,
        timeout: aiohttp.ClientTimeout,
        body: bytes | None = None,
        content_type: str = "application/json",
        fenced: bool = False,
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise Unavailable("the client is not open")
        headers = {"Accept": "application/json", "Content-Type": content_type}
        authorization = await self._access.authorization()
        if authorization:
            headers["Authorization"] = authorization
        self._fenced.set(fenced)
        return await self._session.request(
            method,
            self._access.server + path,
            params=query,
            data=body,
            headers=headers,
            timeout=timeout,
            ssl=self._access.tls or True,
            server_hostname=self._access.server_name,
            proxy=self._access.proxy,
        )

    async def request(
        self,
        verb: str,
        resource: Resource,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JSON | None = None,
        content_type: str = "application/json",
        timeout_seconds: float | None = None,
    ) -> tuple[int, JSON]:
        """One request with a hard total timeout; gives HTTP status and answer."""
        data = None if body is None else orjson.dumps(body)
        timeout = self._timeout
        if timeout_seconds is not None:
            timeout = aiohttp.ClientTimeout(total=timeout_seconds)
        status = 0
        fenced = method != "GET" and resource is not LEASE and verb not in _QUESTIONS
        if fenced and not self.fence():
            raise Unavailable(f"{verb} {path}: not sent, the Lease is not held")
        try:
            async with await self._open(
                method,
                path,
                query=query,
                timeout=timeout,
                body=data,
                content_type=content_type,
                fenced=fenced,
            ) as response:
                status, text = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"{verb} {path}: {type(error).__name__} {error}") from error
        finally:
            self._observe(verb, resource.kind, status)
        answer = decoded(text, status, f"{verb} {path}")
        if status >= 400:
            message = answer.get("message", text[:512].decode(errors="replace"))
            raise error_of(status, f"{verb} {path}: {status} {message}")
        return status, answer

    async def get(
        self, resource: Resource, namespace: str, name: str, *, timeout_seconds: float | None = None
    ) -> JSON:
        """One object."""
        path = resource.path(namespace, name)
        answer = await self.request("get", resource, "GET", path, timeout_seconds=timeout_seconds)
        return answer[1]

    async def list_all(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        selector: str = "",
        field: str = "",
        page: int = 200,
        keep: Callable[[JSON], bool] = lambda item: True,
    ) -> tuple[list[JSON], str]:
        """All objects to `keep`, read in pages, and the resourceVersion to watch from.

        Children come without managedFields, which are half of a list and read by nobody here.
        """
        query = {"limit": str(page)} | selecting(selector, field)
        items: list[JSON] = []
        while True:
            path = resource.path(namespace)
            _, answer = await self.request("list", resource, "GET", path, query=query)
            page_items, version, following = page_of(answer, path)
            found = [item for item in page_items if keep(item)]
            for item in found if resource is not SPECULATIVE_DEPLOYMENT else ():
                item.get("metadata", {}).pop("managedFields", None)
            items += found
            if not following:
                return items, version
            query = query | {"continue": following}

    async def watch(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        resource_version: str,
        selector: str = "",
        field: str = "",
        server_seconds: float = 300.0,
        silent_seconds: float = 70.0,
    ) -> AsyncGenerator[tuple[str, JSON]]:
        """Events (type, object) until the server ends the watch; bookmarks included.

        `silent_seconds` without a byte raise Silent: a half-open connection (kopf#585), or a
        kind that nothing changed, of which the server sends no bookmarks either (1.34).
        """
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, int(server_seconds))),
        }
        query |= selecting(selector, field)
        timeout = aiohttp.ClientTimeout(
            total=server_seconds + silent_seconds,
            sock_connect=silent_seconds,
            sock_read=silent_seconds,
        )
        path = resource.path(namespace)
        try:
            async with await self._open("GET", path, query=query, timeout=timeout) as response:
                self._observe("watch", resource.kind, response.status)
                if response.status != 200:
                    raise error_of(response.status, f"watch {path}: {await response.text()}")
                async for line in lines_of(response.content):
                    yield event_of(line, path)
        except aiohttp.SocketTimeoutError as error:
            raise Silent(f"watch {path}: silent for {silent_seconds:g} s") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"watch {path}: {type(error).__name__} {error}") from error

    async def create(
        self, resource: Resource, body: JSON, *, timeout_seconds: float | None = None
    ) -> JSON:
        """Creates; Conflict when the name is taken, Refused for a field that the server lacks."""
        path = resource.path(body["metadata"]["namespace"])
        answer = await self.request(
            "create",
            resource,
            "POST",
            path,
            query={"fieldManager": MANAGER, "fieldValidation": "Strict"},
            body=body,
            timeout_seconds=timeout_seconds,
        )
        return answer[1]

    async def apply(self, resource: Resource, body: JSON) -> tuple[bool, JSON]:
        """Server-side apply; says whether it created the object.

        With `metadata.uid` in the body, a different or missing object is a Conflict.
        """
        metadata = body["metadata"]
        try:
            status, answer = await self.request(
                "apply",
                resource,
                "PATCH",
                resource.path(metadata["namespace"], metadata["name"]),
                query={"fieldManager": MANAGER, "force": "true"},
                body=body,
                content_type=APPLY_PATCH,
            )
        except ApiError as error:
            # The server's way to say that the object was replaced by another one.
            if error.status == 422 and "metadata.uid" in str(error):
                raise Conflict(str(error), 409) from error
            raise
        return status == 201, answer

    async def adopt_fields(self, resource: Resource, thing: JSON) -> None:
        """Makes the fields that `create` set as if an apply had set them.

        Only an apply after that removes what it no longer lists. The same as client-go's
        csaupgrade.UpgradeManagedFields.
        """
        metadata = thing["metadata"]
        live = await self.get(resource, metadata["namespace"], metadata["name"])
        entries = live["metadata"].get("managedFields") or []
        ours = [e for e in entries if e.get("manager") == MANAGER and not e.get("subresource")]
        if not any(entry["operation"] == "Update" for entry in ours):
            return
        adopted = [{**e, "operation": "Apply"} for e in ours if e["operation"] == "Update"]
        body = {
            "metadata": {
                **{key: live["metadata"][key] for key in ("uid", "resourceVersion")},
                "managedFields": [e for e in entries if e not in ours] + adopted[:1],
            }
        }
        path = resource.path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": MANAGER}
        await self.request(
            "patch", resource, "PATCH", path, query=query, body=body, content_type=MERGE_PATCH
        )

    async def replace(
        self, resource: Resource, body: JSON, *, timeout_seconds: float | None = None
    ) -> JSON:
        """Replaces the object of `metadata.resourceVersion`, else Conflict."""
        metadata = body["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"])
        answer = await self.request(
            "update", resource, "PUT", path, body=body, timeout_seconds=timeout_seconds
        )
        return answer[1]

    async def set_status(self, resource: Resource, thing: JSON, status: JSON) -> JSON:
        """Replaces `status` of exactly this version of the object, else Conflict.

        A merge patch keeps absent keys, so keys that went are sent as null.
        """
        metadata = thing["metadata"]
        path = resource.path(metadata["namespace"], metadata["name"], "status")
        gone = {key: None for key in thing.get("status", {}) if key not in status}
        body = {
            "metadata": {key: metadata[key] for key in ("uid", "resourceVersion")},
            "status": replacing(thing.get("status", {}), status) | gone,
        }
        answer = await self.request(
            "patch-status", resource, "PATCH", path, body=body, content_type=MERGE_PATCH
        )
        return answer[1]

    async def delete(self, resource: Resource, thing: JSON) -> bool:
        """Deletes exactly this object (by UID); False when it is gone already."""
        metadata = thing["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Background",
            "preconditions": {"uid": metadata["uid"]},
        }
        path = resource.path(metadata["namespace"], metadata["name"])
        try:
            await self.request("delete", resource, "DELETE", path, body=body)
        except (NotFound, Conflict):
            return False
        return True

    async def emit(self, body: JSON) -> None:
        """Creates an Event."""
        await self.create(EVENT, body)
