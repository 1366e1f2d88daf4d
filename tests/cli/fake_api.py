"""A small API server for one resource type: GET and merge PATCH, on loopback.

`on_patch` stands in for the operator: it may change the stored object after
each PATCH. Used by test_verbs.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

PREFIX = "/apis/speculative.dev/v1alpha1/namespaces/"


@dataclass
class FakeApi:
    """What the server holds and what it was asked."""

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    revisions: list[dict[str, Any]] = field(default_factory=list)
    config_maps: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    gateway_pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Of shared gateways, by the selector that is asked for."""
    digests: dict[str, str] = field(default_factory=dict)
    """What a worker says, by pod."""
    forbidden: set[str] = field(default_factory=set)
    """Path endings that are answered with 403."""
    selectors: list[str] = field(default_factory=list)
    patches: list[dict[str, Any]] = field(default_factory=list)
    on_patch: Callable[[dict[str, Any]], None] | None = None
    crd_installed: bool = True
    refuse_with: int | None = None
    address: str = ""

    def put(self, raw: dict[str, Any]) -> None:
        metadata = raw["metadata"]
        self.objects[f"{metadata['namespace']}/{metadata['name']}"] = raw

    def kubeconfig(self, folder: Path, *, namespace: str | None = "llm") -> Path:
        context: dict[str, Any] = {"cluster": "c", "user": "u"}
        if namespace:
            context["namespace"] = namespace
        path = folder / "kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "here",
                    "contexts": [{"name": "here", "context": context}],
                    "clusters": [{"name": "c", "cluster": {"server": self.address}}],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                }
            )
        )
        return path


def merge(target: dict[str, Any], patch: dict[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merge(target[key], value)
        else:
            target[key] = value


@contextmanager
def serving(api: FakeApi) -> Iterator[FakeApi]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            return

        def _answer(self, status: int, body: Any) -> None:
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            kind = "text/plain" if isinstance(body, str) else "application/json"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def _find(self) -> dict[str, Any] | None:
            if api.refuse_with is not None:
                message = "speculativedeployments is forbidden: no get here"
                self._answer(api.refuse_with, {"kind": "Status", "message": message})
                return None
            if not api.crd_installed or not self.path.startswith(PREFIX):
                self._answer(404, "404 page not found")
                return None
            path = self.path.partition("?")[0].removeprefix(PREFIX)
            namespace, _, name = path.partition("/speculativedeployments/")
            found = api.objects.get(f"{namespace}/{name}")
            if found is None:
                self._answer(
                    404,
                    {"kind": "Status", "reason": "NotFound", "details": {"name": name}},
                )
            return found

        def _listed(self) -> list[dict[str, Any]] | None:
            """What a list request asks for; None for any other request."""
            path, _, query = self.path.partition("?")
            if path == "/apis/apps/v1/namespaces/llm/controllerrevisions":
                api.selectors += parse_qs(query)["labelSelector"]
                return api.revisions
            if path == "/api/v1/namespaces":
                return [{"metadata": {"name": "llm"}}, {"metadata": {"name": "default"}}]
            if path == "/api/v1/namespaces/llm/pods":
                asked = parse_qs(query).get("labelSelector", [""])[0]
                shared = asked.startswith("speculative.dev/gateway=")
                return api.gateway_pods.get(asked, []) if shared else api.pods
            if path == "/api/v1/namespaces/llm/configmaps":
                api.selectors += parse_qs(query)["fieldSelector"]
                return api.config_maps
            if path == "/apis/speculative.dev/v1alpha1/speculativedeployments":
                return list(api.objects.values())
            if path == f"{PREFIX}llm/speculativedeployments":
                return [o for key, o in api.objects.items() if key.startswith("llm/")]
            return None

        def _digest(self) -> bool:
            path = unquote(self.path)
            head, _, tail = path.partition(":8001/proxy/digest")
            said = api.digests.get(head.rpartition("/")[2])
            if head == path or tail or "/api/v1/namespaces/llm/pods/" not in head:
                return False
            if said is None:
                message = "error trying to reach service: connection refused"
                self._answer(503, {"kind": "Status", "message": message})
            else:
                self._answer(200, said)
            return True

        def do_GET(self) -> None:
            if any(self.path.partition("?")[0].endswith(end) for end in api.forbidden):
                message = f"User u cannot get {self.path.partition('?')[0]}"
                self._answer(403, {"kind": "Status", "message": message})
                return
            if self._digest():
                return
            listed = self._listed() if api.refuse_with is None and api.crd_installed else None
            if listed is not None:
                self._answer(200, {"kind": "List", "apiVersion": "v1", "items": listed})
                return
            found = self._find()
            if found is not None:
                self._answer(200, found)

        def do_PATCH(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = self._find()
            if found is None:
                return
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            api.patches.append(body)
            merge(found, body)
            if api.on_patch is not None:
                api.on_patch(found)
            self._answer(200, found)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
