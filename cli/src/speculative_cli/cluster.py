"""The API server as seen from the command line: read one resource, annotate it.

Configuration as kubectl's: --kubeconfig, else KUBECONFIG, else
~/.kube/config, else the service account of the pod this runs in. Every
failure becomes one sentence that says what to do.
"""

import json
from typing import Any, Self

import urllib3
from kubernetes import client
from kubernetes import config as untyped_config

from speculative_api.labels import GROUP, KIND, PLURAL, VERSION

from .errors import CliError, NotFound, Unreachable

# The package says that it is typed, but this part of it is not.
config: Any = untyped_config

CONNECT_SECONDS = 5.0
READ_SECONDS = 15.0
"""Longest silence while an answer is awaited."""


class Cluster:
    """A connection; close it, or use it as a context manager."""

    def __init__(self, api_client: Any, *, namespace: str) -> None:
        api_client.configuration.retries = False
        self._api_client = api_client
        self._objects = client.CustomObjectsApi(api_client)
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
        return self._call(self._objects.get_namespaced_custom_object, name)

    def annotate(self, name: str, *, annotation: str, value: str) -> dict[str, Any]:
        """Sets one annotation and nothing else; returns the object. Raises as `read`."""
        body = {"metadata": {"annotations": {annotation: value}}}
        return self._call(
            self._objects.patch_namespaced_custom_object,
            name,
            body=body,
            field_manager="kubectl-speculative",
            _content_type="application/merge-patch+json",
        )

    def _call(self, method: Any, name: str, **arguments: Any) -> dict[str, Any]:
        try:
            found: dict[str, Any] = method(
                group=GROUP,
                version=VERSION,
                namespace=self.namespace,
                plural=PLURAL,
                name=name,
                _request_timeout=(CONNECT_SECONDS, READ_SECONDS),
                **arguments,
            )
        except client.ApiException as error:
            raise self._explain(error, name) from error
        except urllib3.exceptions.HTTPError as error:
            host = self._api_client.configuration.host
            raise Unreachable(f"no answer from the API server at {host}: {error}") from error
        return found

    def _explain(self, error: Any, name: str) -> CliError:
        try:
            answer = json.loads(error.body or "")
        except ValueError:
            answer = {}
        said = answer.get("message") or error.reason or "no reason given"
        if error.status == 404:
            if answer.get("details", {}).get("name") == name:
                return NotFound(f"{KIND} {name} not found in namespace {self.namespace}")
            return NotFound(
                f"this cluster does not know the resource type {PLURAL}.{GROUP}: install the "
                "speculative-operator chart first"
            )
        if error.status == 401:
            return CliError("the API server does not accept these credentials (401): log in again")
        if error.status == 403:
            return CliError(f"not allowed (403): {said}")
        if error.status == 429 or error.status >= 500:
            return Unreachable(f"the API server answers {error.status}: {said}")
        return CliError(f"the API server answers {error.status}: {said}")


def connect(
    *, kubeconfig: str | None = None, context: str | None = None, namespace: str | None = None
) -> Cluster:
    """Reads the configuration; no request is sent yet.

    Raises:
        CliError: there is no usable configuration.
    """
    try:
        _, active = config.list_kube_config_contexts(config_file=kubeconfig)
        if context:
            contexts, _ = config.list_kube_config_contexts(config_file=kubeconfig)
            active = next((c for c in contexts if c["name"] == context), active)
        api_client = config.new_client_from_config(
            config_file=kubeconfig, context=context, persist_config=False
        )
    except config.ConfigException as error:
        if kubeconfig or context:
            raise CliError(f"kubeconfig: {error}") from error
        return _in_cluster(error, namespace)
    default = active.get("context", {}).get("namespace") or "default"
    return Cluster(api_client, namespace=namespace or default)


def _in_cluster(no_kubeconfig: Exception, namespace: str | None) -> Cluster:
    configuration = client.Configuration()
    try:
        config.load_incluster_config(client_configuration=configuration)
    except config.ConfigException:
        raise CliError(
            f"no cluster is configured ({no_kubeconfig}): set KUBECONFIG or use --kubeconfig"
        ) from no_kubeconfig
    return Cluster(client.ApiClient(configuration), namespace=namespace or "default")
