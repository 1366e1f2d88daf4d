"""The real CRDs of other projects' kinds on a test's API server, where they come and go."""

import json
import time
from collections.abc import Callable

from e2e.cluster.gateway_api import (
    GATEWAY_API,
    INFERENCE_EXTENSION,
    LEADER_WORKER_SET,
    Module,
    crds,
)
from e2e.cluster.settings import current_settings
from tests.cluster.envtest import Server, _is_established

from speculative_operator.cluster import resources
from speculative_operator.cluster.resources import HTTP_ROUTE, INFERENCE_POOL, JSON, Resource

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATIENCE_SECONDS = 60.0


class Kind:
    """The real CRD of a kind, which comes and goes."""

    def __init__(
        self, server: Server, resource: Resource = HTTP_ROUTE, module: Module = GATEWAY_API
    ) -> None:
        self._server, self._resource = server, resource
        name = f"{resource.api_version.rpartition('/')[0]}_{resource.plural}.yaml"
        (self._file,) = [p for p in crds(current_settings(), module) if p.name == name]
        self._name = f"{resource.plural}.{resource.api_version.rpartition('/')[0]}"

    def install(self) -> None:
        self._server.raw("POST", CRDS, self._file.read_bytes())
        self._until(lambda: _is_established(self._read()))
        path, kind = self._resource.path("default"), self._resource.kind.encode()
        self._until(lambda: kind in self._server.raw("GET", path))

    def remove(self) -> None:
        try:
            self._server.raw("DELETE", f"{CRDS}/{self._name}")
        except OSError:
            return
        self._until(lambda: self._is_gone())

    def _read(self) -> JSON:
        found: JSON = json.loads(self._server.raw("GET", f"{CRDS}/{self._name}"))
        return found

    def _is_gone(self) -> bool:
        try:
            self._server.raw("GET", f"{CRDS}/{self._name}")
        except OSError:
            return True
        return False

    def _until(self, question: Callable[[], object]) -> None:
        limit = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if question():
                    return
            except OSError:
                pass
            assert time.monotonic() < limit, "the API server did not follow"
            time.sleep(0.05)


def pool_kind(server: Server) -> Kind:
    """That of InferencePool."""
    return Kind(server, INFERENCE_POOL, INFERENCE_EXTENSION)


def groups_kind(server: Server) -> Kind:
    """That of LeaderWorkerSet."""
    return Kind(server, resources.LEADER_WORKER_SET, LEADER_WORKER_SET)
