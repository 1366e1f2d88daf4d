"""The real CRD of HTTPRoute on a test's API server, where it comes and goes."""

import time
from collections.abc import Callable

import yaml
from e2e.cluster.gateway_api import crds
from e2e.cluster.settings import current_settings
from tests.cluster.envtest import Server, _is_established

from speculative_operator.cluster.resources import HTTP_ROUTE, JSON

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PATIENCE_SECONDS = 60.0


class Kind:
    """The real CRD of HTTPRoute, which comes and goes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        (self._file,) = [p for p in crds(current_settings()) if "_httproutes" in p.name]
        self._name = yaml.safe_load(self._file.read_text())["metadata"]["name"]

    def install(self) -> None:
        self._server.raw("POST", CRDS, self._file.read_bytes())
        self._until(lambda: _is_established(self._read()))
        self._until(lambda: b"HTTPRoute" in self._server.raw("GET", HTTP_ROUTE.path("default")))

    def remove(self) -> None:
        try:
            self._server.raw("DELETE", f"{CRDS}/{self._name}")
        except OSError:
            return
        self._until(lambda: self._is_gone())

    def _read(self) -> JSON:
        found: JSON = yaml.safe_load(self._server.raw("GET", f"{CRDS}/{self._name}"))
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
