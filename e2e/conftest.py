"""What every end-to-end test needs in the cluster: our CRD and the gateways' role, nobody else."""

import json

import pytest
import yaml
from e2e.dsl import wait_for
from e2e.kubectl import KubectlError, home, kubectl, run

CHART = "charts/speculative-operator"
INSTALLED = ("deployment/speculative-operator", "-n", "speculative-system")


@pytest.fixture(scope="session", autouse=True)
def cluster() -> None:
    """What `prepare` does, once."""
    prepare()


def prepare() -> None:
    """The chart's CRD and gateway role, and the demo's own operator out of the way.

    Tests start operators themselves, and those refuse to work beside one that acts
    on every namespace.
    """
    try:
        found = json.loads(kubectl("get", *INSTALLED, "-o", "json"))
    except KubectlError:
        found = None
    if found is not None and found["spec"]["replicas"]:
        print("\nscaling the installed operator to 0: the tests run their own")
        kubectl("scale", *INSTALLED, "--replicas=0")
        wait_for("the installed operator ended", _nobody_runs)
    helm = home() / "bin" / "helm"
    rendered = run(
        *(str(helm), "template", "speculative-operator", CHART, "--kube-version", "1.34.0"),
        *("--namespace", "speculative-system"),
    )
    needed = [
        document
        for document in yaml.safe_load_all(rendered)
        if document
        and (
            document["kind"] == "CustomResourceDefinition"
            or (
                document["kind"] == "ClusterRole"
                and document["metadata"]["name"].endswith("-gateway")
            )
        )
    ]
    kinds = sorted(document["kind"] for document in needed)
    assert kinds == ["ClusterRole", "CustomResourceDefinition"]
    text = yaml.safe_dump_all(needed)
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=text)


def _nobody_runs() -> bool:
    selector = "app.kubernetes.io/name=speculative-operator"
    return not kubectl("get", "pods", "-n", "speculative-system", "-l", selector, "-o", "name")
