"""The cluster of the kube context that the user names; never chosen unasked.

Nothing is installed into it here. Its context is copied, alone, into a
kubeconfig of ours, so that nothing else can be reached by accident.
"""

from __future__ import annotations

from .commands import output_of, say
from .settings import ClusterError, Settings


def up(settings: Settings) -> None:
    """Copy the named context, and check that its API server answers.

    Raises:
        ClusterError: no context is named, it is unknown, or its server does not answer.
    """
    if not settings.kube_context:
        raise ClusterError("CLUSTER=current uses the context you name: set KUBE_CONTEXT")
    view = ["kubectl", "config", "view", "--raw", "--minify", "--flatten"]
    text = output_of([*view, "--context", settings.kube_context])
    settings.home.mkdir(parents=True, exist_ok=True)
    settings.kubeconfig.touch(mode=0o600)
    settings.kubeconfig.write_text(text, encoding="utf-8")
    kubectl = ["kubectl", "--kubeconfig", str(settings.kubeconfig), "--request-timeout=10s"]
    output_of([*kubectl, "get", "--raw", "/readyz"])
    say(f"context {settings.kube_context} answers; KUBECONFIG={settings.kubeconfig}")


def images(settings: Settings) -> None:
    """Refuse: where your cluster's nodes pull from is not for us to know.

    Raises:
        ClusterError: always, with what to do.
    """
    raise ClusterError(
        "CLUSTER=current: build Dockerfile.operator and Dockerfile.worker, push the images where"
        " your nodes pull from, and name them in the chart's values (docs/local-cluster.md)"
    )
