"""kubectl as a function: what a user would type, with JSON in and out and clear failures."""

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class KubectlError(AssertionError):
    """kubectl ended with an error; the message is what it printed."""


def home() -> Path:
    """The folder that holds everything expensive."""
    default = Path.home() / ".cache" / "speculative-operator"
    return Path(os.environ.get("SPECULATIVE_HOME", default))


def kubeconfig() -> Path:
    """KUBECONFIG if set, else the local cluster's."""
    return Path(os.environ.get("KUBECONFIG", home() / "kubeconfig"))


def kubectl(*arguments: str, stdin: str | None = None, seconds: float = 60) -> str:
    """Runs kubectl against the cluster and returns what it printed.

    Raises:
        KubectlError: with its error output, when it fails.
    """
    program = ("kubectl", "--kubeconfig", str(kubeconfig()))
    return run(*program, *arguments, stdin=stdin, seconds=seconds)


def run(*command: str, stdin: str | None = None, seconds: float = 60) -> str:
    """Runs any program the same way. Raises KubectlError when it fails."""
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False
    )
    if done.returncode != 0:
        raise KubectlError(done.stderr.strip() or done.stdout.strip())
    return done.stdout


def apply(manifest: Mapping[str, Any], namespace: str) -> None:
    """`kubectl apply` of one object, as a user does it (strict about unknown fields)."""
    kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(manifest))


def get(kind: str, name: str, namespace: str) -> dict[str, Any]:
    """One object."""
    found: dict[str, Any] = json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json"))
    return found


def listed(kind: str, namespace: str, selector: str = "") -> list[dict[str, Any]]:
    """All objects of a kind in a namespace."""
    chosen = ("-l", selector) if selector else ()
    text = kubectl("get", kind, "-n", namespace, "-o", "json", *chosen)
    items: list[dict[str, Any]] = json.loads(text)["items"]
    return items
