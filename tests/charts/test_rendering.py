"""What helm makes of the chart: RBAC equal to the operator's requests, restricted pods.

Needs helm (the cluster tool builds it), hence the mark `cluster`.
"""

import os
import shutil
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.charts.dry_run import dry_run
from tests.cluster.envtest import Server, binary_folder
from tests.reconcile.test_process_on_server import a_kubeconfig

from speculative_operator.cluster import resources
from speculative_operator.cluster.claims import CLUSTER_NAMESPACE, lease_name
from speculative_operator.desired import names
from speculative_operator.settings import Settings
from speculative_operator.shard import MOST_SHARDS, Shard

pytestmark = pytest.mark.cluster

CHART = Path(__file__).parents[2] / "charts" / "speculative-operator"
RELEASE, NAMESPACE = "speculative-operator", "speculative-system"
Objects = dict[tuple[str, str], dict[str, Any]]


def template(release: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template` for a present Kubernetes: a helm built from its module assumes 1.20."""
    program = shutil.which("helm") or str(binary_folder() / "helm")
    argv = [program, "template", release, str(CHART), "--kube-version", "1.34.0", *arguments]
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)


def rendered(*settings: str, release: str = RELEASE) -> Objects:
    """Objects by kind and name; `settings` are `key=value` for `--set`."""
    extra = [part for setting in settings for part in ("--set", setting)]
    done = template(release, "--namespace", NAMESPACE, *extra)
    assert done.returncode == 0, done.stderr
    bodies = [body for body in yaml.safe_load_all(done.stdout) if body]
    return {(body["kind"], body["metadata"]["name"]): body for body in bodies}


@pytest.fixture(scope="module")
def objects() -> Objects:
    return rendered()


def granted(rules: list[dict[str, Any]]) -> dict[tuple[str, str], set[str]]:
    """(group, resource) -> verbs, rules for single names left out."""
    found: dict[tuple[str, str], set[str]] = {}
    for rule in rules:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                if "resourceNames" not in rule:
                    found.setdefault((group, resource), set()).update(rule["verbs"])
    return found


def needed() -> dict[tuple[str, str], set[str]]:
    """What the client's requests need: reflectors, server-side apply, pruning, status, events."""
    found: dict[tuple[str, str], set[str]] = {}

    def need(resource: resources.Resource, *verbs: str, suffix: str = "") -> None:
        group = resource.api_version.rpartition("/")[0]
        found.setdefault((group, resource.plural + suffix), set()).update(verbs)

    for resource in resources.WATCHED:
        need(resource, "get", "list", "watch")
    for resource in resources.CHILDREN:
        # A Job's template can't change: it is made and removed.
        changes = () if resource is resources.JOB else ("patch",)
        need(resource, "create", "delete", *changes)
    need(resources.SPECULATIVE_DEPLOYMENT, "patch", suffix="/status")
    need(resources.POD, "patch")
    need(resources.EVENT, "create", "patch", "list")
    return found


def test_the_operator_may_do_what_it_does_and_no_more(objects: Objects) -> None:
    assert granted(objects["ClusterRole", RELEASE]["rules"]) == needed()


def test_only_the_gateways_role_can_be_bound(objects: Objects) -> None:
    (named,) = [r for r in objects["ClusterRole", RELEASE]["rules"] if "resourceNames" in r]
    gateway = f"{RELEASE}-gateway"
    assert (named["resourceNames"], named["verbs"]) == ([gateway], ["bind"])
    assert gateway == Settings().gateway_cluster_role
    assert granted(objects["ClusterRole", gateway]["rules"]) == {
        ("", "configmaps"): {"get", "list", "watch"},
        ("discovery.k8s.io", "endpointslices"): {"get", "list", "watch"},
    }


def lease_rules(objects: Objects, kind: str, name: str) -> set[tuple[str, tuple[str, ...]]]:
    """(verb, names it is limited to) for Leases."""
    rules = objects[kind, f"{RELEASE}-{name}"]["rules"]
    assert all(rule["resources"] == ["leases"] for rule in rules)
    return {(verb, tuple(r.get("resourceNames", ()))) for r in rules for verb in r["verbs"]}


OURS = ("speculative-operator",)
OF_SHARDS = tuple(lease_name(Shard(index, MOST_SHARDS)) for index in range(MOST_SHARDS))


def writes_its_lease(names: tuple[str, ...]) -> set[tuple[str, tuple[str, ...]]]:
    return {("create", ()), ("get", names), ("update", names), ("watch", names)}


def test_it_writes_one_lease_for_all_namespaces_and_sees_those_of_single_ones(
    objects: Objects,
) -> None:
    assert objects["Role", f"{RELEASE}-lease"]["metadata"]["namespace"] == CLUSTER_NAMESPACE
    assert lease_rules(objects, "Role", "lease") == {*writes_its_lease(OF_SHARDS), ("list", ())}
    assert lease_rules(objects, "ClusterRole", "other-leases") == {("list", OURS)}


def test_with_one_namespace_the_lease_is_there_and_the_other_one_can_be_read() -> None:
    objects = rendered("watchNamespace=llm")
    assert objects["Role", f"{RELEASE}-lease"]["metadata"]["namespace"] == "llm"
    assert lease_rules(objects, "Role", "lease") == writes_its_lease(OURS)
    other = objects["Role", f"{RELEASE}-other-leases"]
    assert other["metadata"]["namespace"] == CLUSTER_NAMESPACE
    assert lease_rules(objects, "Role", "other-leases") == {("list", ())}


def test_one_namespace_needs_no_cluster_wide_rights() -> None:
    objects = rendered("watchNamespace=llm")
    role = objects["Role", RELEASE]
    assert role["metadata"]["namespace"] == "llm"
    assert granted(role["rules"]) == needed()
    assert objects["RoleBinding", RELEASE]["metadata"]["namespace"] == "llm"
    assert objects["RoleBinding", RELEASE]["roleRef"]["kind"] == "Role"
    assert role["rules"] == rendered()["ClusterRole", RELEASE]["rules"]
    cluster_wide = {name for kind, name in objects if kind.startswith("ClusterRole")}
    assert cluster_wide == {f"{RELEASE}-gateway"}


def container_of(objects: Objects, name: str = RELEASE) -> dict[str, Any]:
    (container,) = objects["Deployment", name]["spec"]["template"]["spec"]["containers"]
    return container  # type: ignore[no-any-return]


def test_every_variable_is_a_setting_and_is_understood(objects: Objects) -> None:
    known = {field.name.upper() for field in fields(Settings)}
    env = container_of(objects)["env"]
    assert {variable["name"] for variable in env} <= known
    literal = {variable["name"]: variable["value"] for variable in env if "value" in variable}
    assert Settings.from_environment(literal) == Settings()


def test_values_reach_the_operator() -> None:
    objects = rendered("settings.leaseSeconds=20", "worker.image=w:1", "gateway.image=g:1")
    env = container_of(objects)["env"]
    literal = {variable["name"]: variable["value"] for variable in env if "value" in variable}
    settings = Settings.from_environment(literal)
    assert (settings.lease_seconds, settings.worker_image, settings.gateway_image) == (
        20.0,
        "w:1",
        "g:1",
    )


def test_the_pod_is_restricted(objects: Objects) -> None:
    spec = objects["Deployment", RELEASE]["spec"]
    assert spec["template"]["spec"]["securityContext"]["runAsNonRoot"] is True
    context = container_of(objects)["securityContext"]
    assert context["readOnlyRootFilesystem"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_a_new_pod_is_warm_before_the_old_one_leaves(objects: Objects) -> None:
    spec = objects["Deployment", RELEASE]["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert ("PodDisruptionBudget", RELEASE) not in objects, "it would block a drain"


def test_two_operators_are_on_two_nodes_and_leave_one_at_a_time() -> None:
    objects = rendered("replicas=2")
    deployment = objects["Deployment", RELEASE]["spec"]
    assert deployment["replicas"] == 2
    (term,) = deployment["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = deployment["selector"]["matchLabels"]
    assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
    budget = objects["PodDisruptionBudget", RELEASE]["spec"]
    assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}


def test_each_shard_has_a_deployment_of_its_own() -> None:
    objects = rendered("operator.shards=3", "replicas=2")
    assert ("Deployment", RELEASE) not in objects
    found, selectors = [], []
    for index in range(3):
        name = f"{RELEASE}-{index}"
        spec = objects["Deployment", name]["spec"]
        literal = {
            v["name"]: v["value"] for v in container_of(objects, name)["env"] if "value" in v
        }
        found.append(Settings.from_environment(literal).own_shard)
        labels = spec["selector"]["matchLabels"]
        selectors.append(labels)
        assert labels.items() <= spec["template"]["metadata"]["labels"].items()
        (term,) = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
            "preferredDuringSchedulingIgnoredDuringExecution"
        ]
        assert term["podAffinityTerm"]["labelSelector"]["matchLabels"] == labels
        budget = objects["PodDisruptionBudget", name]["spec"]
        assert budget == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    assert found == [Shard(index, 3) for index in range(3)]
    assert [one for one in selectors if selectors.count(one) > 1] == [], "they adopt each other's"


def test_any_replica_of_any_shard_answers_for_metrics() -> None:
    objects = rendered(*METRICS, "operator.shards=2")
    selector = objects["Service", f"{RELEASE}-metrics"]["spec"]["selector"]
    for index in range(2):
        pod = objects["Deployment", f"{RELEASE}-{index}"]["spec"]["template"]["metadata"]
        assert selector.items() <= pod["labels"].items()
        env = container_of(objects, f"{RELEASE}-{index}")["env"]
        assert [v for v in env if v["name"] == "EXTERNAL_METRICS_CERTIFICATES"]


def test_a_single_namespace_cannot_be_divided() -> None:
    done = template(RELEASE, "--set", "operator.shards=2", "--set", "watchNamespace=llm")
    assert done.returncode != 0
    assert "set one of the two" in done.stderr


METRICS = ("replicas=2", "externalMetrics.enabled=true")
API = "v1beta1.external.metrics.k8s.io"


def test_external_metrics_are_off_unless_asked_for(objects: Objects) -> None:
    assert ("APIService", API) not in objects
    assert not [variable for variable in container_of(objects)["env"] if "METRICS" in str(variable)]


def test_external_metrics_need_two_operators() -> None:
    done = template(RELEASE, "--set", "externalMetrics.enabled=true")
    assert done.returncode != 0
    assert "every namespace deletion in the cluster waits" in done.stderr


def test_external_metrics_are_reached_by_a_certificate_of_the_bundle() -> None:
    objects = rendered(*METRICS)
    service = objects["Service", f"{RELEASE}-metrics"]
    api = objects["APIService", API]["spec"]
    assert api["service"] == {
        "namespace": NAMESPACE,
        "name": service["metadata"]["name"],
        "port": service["spec"]["ports"][0]["port"],
    }
    container = container_of(objects)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == Settings().external_metrics_port
    secret = objects["Secret", f"{RELEASE}-metrics"]["data"]
    assert api["caBundle"] == secret["ca.crt"]
    assert {"ca.crt", "tls.crt", "tls.key"} == set(secret)
    (mounted,) = [v for v in container["volumeMounts"] if v["name"] == "certificates"]
    folder = [v["value"] for v in container["env"] if v["name"] == "EXTERNAL_METRICS_CERTIFICATES"]
    assert folder == [mounted["mountPath"]]
    (volume,) = [
        v
        for v in objects["Deployment", RELEASE]["spec"]["template"]["spec"]["volumes"]
        if v["name"] == "certificates"
    ]
    assert volume["secret"]["secretName"] == f"{RELEASE}-metrics"


def test_external_metrics_add_one_right_and_one_that_comes_with_kubernetes() -> None:
    objects = rendered(*METRICS)
    assert granted(objects["ClusterRole", f"{RELEASE}-metrics"]["rules"]) == {
        ("authorization.k8s.io", "subjectaccessreviews"): {"create"}
    }
    binding = objects["RoleBinding", f"{RELEASE}-metrics"]
    assert binding["metadata"]["namespace"] == "kube-system"
    assert binding["roleRef"]["name"] == "extension-apiserver-authentication-reader"


def test_another_provider_is_found_and_left_alone(api_server: Server, tmp_path: Path) -> None:
    """With the server's own look-up, as at an installation."""
    body = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"namespace": "keda", "name": "keda-operator-metrics-apiserver"},
        },
    }
    kubeconfig = a_kubeconfig(api_server.url, tmp_path, "admin")
    values = [part for value in (*METRICS, "crds.install=false") for part in ("--set", value)]
    argv = [shutil.which("helm") or str(binary_folder() / "helm"), "install", RELEASE, str(CHART)]
    argv += ["--kubeconfig", str(kubeconfig), "--namespace", "default", "--dry-run=server", *values]

    def install() -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
        return subprocess.run(argv, capture_output=True, text=True, env=environment, check=False)

    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    api_server.raw("POST", path, yaml.safe_dump(body).encode())
    try:
        refused = install()
    finally:
        api_server.raw("DELETE", f"{path}/{API}")
    assert refused.returncode != 0
    assert "served by keda/keda-operator-metrics-apiserver" in refused.stderr
    assert install().returncode == 0


def test_the_crd_is_upgraded_with_the_release_and_kept_on_uninstall(objects: Objects) -> None:
    name = "speculativedeployments.speculative.dev"
    crd = objects["CustomResourceDefinition", name]
    assert crd == yaml.safe_load((CHART / "files" / "crd.yaml").read_text("utf-8"))
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    without = rendered("crds.install=false")
    assert ("CustomResourceDefinition", name) not in without


@pytest.mark.parametrize(
    "wrong",
    [
        "replicas=-1",
        "settings.worker=1",
        "imagePullPolicy=Sometimes",
        "operator.image=",
        "operator.shards=0",
        "operator.shards=33",
        "crds.install=x",
    ],
)
def test_wrong_values_are_refused(wrong: str) -> None:
    done = template(RELEASE, "--set", wrong)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_a_second_release_name_makes_names_of_its_own() -> None:
    objects = rendered(release="other")
    assert ("Deployment", "other-speculative-operator") in objects
    env = container_of(objects, name="other-speculative-operator")["env"]
    roles = [v["value"] for v in env if v["name"] == "GATEWAY_CLUSTER_ROLE"]
    assert ("ClusterRole", roles[0]) in objects


def test_a_real_api_server_takes_every_object(objects: Objects, api_server: Server) -> None:
    """Unknown fields are refused, which a template's typing mistake would be."""
    divided = rendered("operator.shards=2", "replicas=2")
    for (kind, _), body in {**objects, **divided}.items():
        if kind != "CustomResourceDefinition":  # is there already
            dry_run(api_server, body)


def test_a_gateway_reads_only_the_secrets_that_are_named_for_it(objects: Objects) -> None:
    assert not [kind for kind, name in objects if "gateway-keys" in name]
    entry = "gateway.keySecrets[0]"
    found = rendered(f"{entry}.namespace=llm", f"{entry}.deployment=chat", f"{entry}.secret=keys")
    role, binding = found["Role", "chat-gateway-keys"], found["RoleBinding", "chat-gateway-keys"]
    (rule,) = role["rules"]
    assert (rule["resources"], rule["resourceNames"]) == (["secrets"], ["keys"])
    assert rule["verbs"] == ["get", "list", "watch"]
    assert binding["roleRef"]["name"] == "chat-gateway-keys"
    assert {role["metadata"]["namespace"], binding["metadata"]["namespace"]} == {"llm"}
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": names.gateway("chat"), "namespace": "llm"}
    ]


def test_a_shared_gateway_reads_the_secrets_of_all_its_members() -> None:
    entries = [("edge", "one"), ("chat", "three"), ("edge", "two"), ("edge", "one")]
    found = rendered(
        *(
            f"gateway.keySecrets[{number}].{name}={value}"
            for number, (gateway, secret) in enumerate(entries)
            for name, value in (("namespace", "llm"), ("deployment", gateway), ("secret", secret))
        )
    )
    roles = {name: body for (kind, name), body in found.items() if kind == "Role"}
    named = {name: roles[name]["rules"][0]["resourceNames"] for name in roles if "keys" in name}
    assert named == {"edge-gateway-keys": ["one", "two"], "chat-gateway-keys": ["three"]}
    assert {kind for kind, name in found if name in named} == {"Role", "RoleBinding"}
