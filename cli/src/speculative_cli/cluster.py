"""The API server as seen from the command line: read resources and revisions, patch one.

Configuration as kubectl's: --kubeconfig, else KUBECONFIG, else
~/.kube/config, else the service account of the pod this runs in. Every
failure becomes one sentence that says what to do.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import urllib3
import yaml
from kubernetes import client
from kubernetes import config as untyped_config

from speculative_api.labels import (
    GROUP,
    KIND,
    NAME,
    PLURAL,
    SHARED_GATEWAY,
    VERSION,
    WORKER_PORT,
)

from .errors import CliError, NotFound, Unreachable

# The package says that it is typed, but this part of it is not.
config: Any = untyped_config

_RESOURCE = {"group": GROUP, "version": VERSION, "plural": PLURAL}
CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
"""Longest silence while an answer is awaited."""
POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_GARBLED = (yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError)
"""What the client raises about a kubeconfig of another shape."""


class Cluster:
    """A connection; close it, or use it as a context manager."""

    def __init__(
        self, api_client: Any, *, namespace: str, patience_seconds: float = READ_SECONDS
    ) -> None:
        self._timeout = (min(CONNECT_SECONDS, patience_seconds), patience_seconds)
        api_client.configuration.retries = False
        self._api_client = api_client
        self._objects = client.CustomObjectsApi(api_client)
        self._core = client.CoreV1Api(api_client)
        self._apps = client.AppsV1Api(api_client)
        self.namespace = namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections."""
        self._api_client.close()

    def read(self, name: str) -> dict[str, Any]:
        """The raw resource.

        Raises:
            NotFound: it, or its resource type, does not exist.
            Unreachable: no answer.
            CliError: the API server refuses.
        """
        found: dict[str, Any] = self._call(
            self._objects.get_namespaced_custom_object,
            **_RESOURCE,
            namespace=self.namespace,
            name=name,
        )
        return found

    def read_all(self, *, everywhere: bool) -> list[dict[str, Any]]:
        """The raw resources of the namespace, or of all. Raises as `read`."""
        if everywhere:
            found = self._call(self._objects.list_cluster_custom_object, **_RESOURCE)
        else:
            found = self._call(
                self._objects.list_namespaced_custom_object, **_RESOURCE, namespace=self.namespace
            )
        items: list[dict[str, Any]] = found["items"]
        return items

    def revisions(self, name: str) -> list[dict[str, Any]]:
        """The raw ControllerRevisions of a resource. Raises as `read`."""
        found = self._call(
            self._apps.list_namespaced_controller_revision,
            namespace=self.namespace,
            label_selector=f"{NAME}={name}",
        )
        items: list[dict[str, Any]] = self._api_client.sanitize_for_serialization(found)["items"]
        return items

    def config_map(self, name: str) -> dict[str, Any]:
        """The raw ConfigMap; empty metadata if there is none. Raises as `read`."""
        found = self._call(
            self._core.list_namespaced_config_map,
            namespace=self.namespace,
            field_selector=f"metadata.name={name}",
        )
        items: list[dict[str, Any]] = self._api_client.sanitize_for_serialization(found)["items"]
        return items[0] if items else {"metadata": {}}

    def namespaces(self) -> list[str]:
        """The names of the namespaces. Raises as `read`."""
        found = self._call(self._core.list_namespace)
        return [str(item.metadata.name) for item in found.items]

    def pods(self, name: str) -> list[dict[str, Any]]:
        """The raw pods of a resource, possibly some seconds old. Raises as `read`."""
        return self._pods(f"{NAME}={name}")

    def gateway_pods(self, gateway: str) -> list[dict[str, Any]]:
        """Those of a shared gateway, likewise."""
        return self._pods(f"{SHARED_GATEWAY}={gateway}")

    def _pods(self, selector: str) -> list[dict[str, Any]]:
        # Parsed here and not by the client, which takes milliseconds for each pod.
        answer = self._call(
            self._core.list_namespaced_pod,
            namespace=self.namespace,
            label_selector=selector,
            resource_version="0",
            _preload_content=False,
        )
        try:
            items: list[dict[str, Any]] = json.loads(answer.data)["items"] or []
        except (ValueError, KeyError, TypeError) as error:
            raise CliError(f"the API server's list of pods can't be read: {error}") from error
        return items

    def digest(self, pod: str) -> str:
        """What a worker says of itself, through the API server. Raises as `read`."""
        answer = self._call(
            self._core.connect_get_namespaced_pod_proxy_with_path,
            namespace=self.namespace,
            name=f"{pod}:{WORKER_PORT}",
            path="digest",
            _preload_content=False,
        )
        text: str = answer.data.decode(errors="replace")
        return text

    def annotate(self, name: str, *, annotation: str, value: str | None) -> dict[str, Any]:
        """Sets or removes one annotation and nothing else; returns the object. Raises as `read`."""
        return self.patch(name, {"metadata": {"annotations": {annotation: value}}})

    def patch(self, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Merges `body` into the resource; returns the object. Raises as `read`."""
        found: dict[str, Any] = self._call(
            self._objects.patch_namespaced_custom_object,
            **_RESOURCE,
            namespace=self.namespace,
            name=name,
            body=body,
            field_manager="kubectl-speculative",
            _content_type="application/merge-patch+json",
        )
        return found

    def _call(self, method: Any, **arguments: Any) -> Any:
        name = arguments.get("name", "")
        ours = arguments.get("plural") == PLURAL
        try:
            return method(**arguments, _request_timeout=self._timeout)
        except client.ApiException as error:
            raise self._explain(error, name, ours=ours) from error
        except urllib3.exceptions.HTTPError as error:
            host = self._api_client.configuration.host
            raise Unreachable(f"no answer from the API server at {host}: {error}") from error

    def _explain(self, error: Any, name: str, *, ours: bool) -> CliError:
        try:
            answer = json.loads(error.body or "")
        except ValueError:
            answer = {}
        said = answer.get("message") or error.reason or "no reason given"
        if error.status == 404 and not ours:
            return NotFound(f"not found (404): {said}")
        if error.status == 404:
            if name and answer.get("details", {}).get("name") == name:
                return NotFound(f"{KIND} {name} not found in namespace {self.namespace}")
            return NotFound(
                f"this cluster does not know the resource type {PLURAL}.{GROUP}: install the "
                "speculative-operator chart first"
            )
        if error.status == 409:
            return CliError("somebody else changed it meanwhile (409): look, and ask again")
        if error.status == 401:
            return CliError("the API server does not accept these credentials (401): log in again")
        if error.status == 403:
            return CliError(f"not allowed (403): {said}")
        if error.status == 429 or error.status >= 500:
            return Unreachable(f"the API server answers {error.status}: {said}")
        return CliError(f"the API server answers {error.status}: {said}")


def connect(
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    namespace: str | None = None,
    patience_seconds: float = READ_SECONDS,
) -> Cluster:
    """Reads the configuration; no request is sent yet.

    Raises:
        CliError: there is no usable configuration.
    """
    try:
        known, active = _contexts(kubeconfig)
        if context:
            active = next((c for c in known if c["name"] == context), active)
        api_client = config.new_client_from_config(
            config_file=_file(kubeconfig), context=context, persist_config=False
        )
        default = (active.get("context") or {}).get("namespace") or "default"
    except config.ConfigException as error:
        if kubeconfig or context:
            raise CliError(f"kubeconfig: {error}") from error
        return _in_cluster(error, namespace)
    except _GARBLED as error:
        raise CliError(f"the kubeconfig can't be read: {type(error).__name__} {error}") from error
    return Cluster(api_client, namespace=namespace or default, patience_seconds=patience_seconds)


def contexts(kubeconfig: str | None = None) -> list[str]:
    """The names of the contexts of the kubeconfig.

    Raises:
        CliError: there is none, or it can't be read.
    """
    try:
        return [str(found["name"]) for found in _contexts(kubeconfig)[0]]
    except (config.ConfigException, *_GARBLED) as error:
        raise CliError(f"kubeconfig: {error}") from error


def _contexts(kubeconfig: str | None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found: tuple[list[dict[str, Any]], dict[str, Any]] = config.list_kube_config_contexts(
        config_file=_file(kubeconfig)
    )
    return found


def _file(kubeconfig: str | None) -> str | None:
    """As kubectl: KUBECONFIG may name several. The client reads it once, when it is imported."""
    return kubeconfig or os.environ.get("KUBECONFIG") or None


def _in_cluster(no_kubeconfig: Exception, namespace: str | None) -> Cluster:
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        raise CliError(
            f"no cluster is configured ({no_kubeconfig}): set KUBECONFIG or use --kubeconfig"
        ) from no_kubeconfig
    own = POD_NAMESPACE.read_text().strip() if POD_NAMESPACE.exists() else ""
    return Cluster(client.ApiClient(configuration), namespace=namespace or own or "default")
