"""Asks a real API server whether it would take an object, without storing it."""

import copy
import urllib.error
from typing import Any

import yaml
from tests.cluster.envtest import Server


def dry_run(server: Server, body: dict[str, Any]) -> None:
    """Creates the object for the show, in namespace `default` if it has one.

    Unknown fields count as errors; an AssertionError carries the server's words.
    """
    body = copy.deepcopy(body)
    parts = [("/apis/" if "/" in body["apiVersion"] else "/api/") + body["apiVersion"]]
    if "namespace" in body["metadata"]:
        body["metadata"]["namespace"] = "default"
        parts.append("namespaces/default")
    path = "/".join([*parts, body["kind"].lower() + "s"])
    query = "?dryRun=All&fieldManager=test&fieldValidation=Strict"
    try:
        server.raw("POST", path + query, yaml.safe_dump(body).encode())
    except urllib.error.HTTPError as error:
        name = f"{body['kind']}/{body['metadata']['name']}"
        raise AssertionError(f"{name}: {error.read().decode()}") from error
