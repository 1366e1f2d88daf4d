"""The node of the local cluster: containerd, kubelet and kube-proxy."""

from __future__ import annotations

import json
from pathlib import Path

from .commands import output_of, succeeds, tail, wait_until
from .control_plane import add_gpus, kubectl, processes_folder
from .processes import FIRST, require_live, start
from .settings import (
    GPU_COUNT,
    NODE_ADDRESS,
    NODE_NAME,
    POD_LINK,
    POD_SUBNET,
    ClusterError,
    Settings,
)

NAMES = ("kubelet", "kube-proxy", "containerd")
"""In the order of ending."""
NODE_LABELS = "accelerator=nvidia-a100,inference-type=speculative"
PAUSE_IMAGE = "localhost/pause:1"
READY_SECONDS = 90.0

_CGROUPS = Path("/sys/fs/cgroup")


def cgroup_hierarchies() -> list[Path]:
    """Return the mounted control group hierarchies: one for version 2, several for 1."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, after = line.split(" - ", 1)
        if after.split()[0] in ("cgroup", "cgroup2"):
            found.append(Path(before.split()[4]))
    return found


def cgroup_names(settings: Settings) -> set[str]:
    """Return our control group, and the one that the kubelet in place was told to use.

    They differ where a cluster was started by another version of this tool.
    """
    names = {settings.cgroup}
    config = settings.cluster / "kubelet.json"
    if config.exists():
        told = json.loads(config.read_text(encoding="utf-8"))["cgroupRoot"]
        names.add(str(told).strip("/"))
    return names - {""}


def _containerd_config(settings: Settings) -> str:
    return f"""version = 2
root = "{settings.containerd_root}"
state = "{settings.containerd_state}"
oom_score = 0
[grpc]
  address = "{settings.containerd_socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{settings.cluster / "cni"}"
"""


def _network_config(settings: Settings) -> dict[str, object]:
    address_management = {
        "type": "host-local",
        "ranges": [[{"subnet": POD_SUBNET}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": str(settings.cluster / "cni-addresses"),
    }
    bridge = {
        "type": "bridge",
        "bridge": POD_LINK,
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": address_management,
    }
    port_map = {"type": "portmap", "capabilities": {"portMappings": True}}
    plugins = [bridge, port_map, {"type": "loopback"}]
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": plugins}


def _kubelet_config(settings: Settings) -> dict[str, object]:
    pki = settings.cluster / "pki"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": True,
        "cgroupRoot": f"/{settings.cgroup}",
        "enforceNodeAllocatable": ["pods"],
        "failSwapOn": False,
        "failCgroupV1": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet.key",
        # Disk and memory are the machine's: its owner, not the kubelet, cleans up.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "containerRuntimeEndpoint": f"unix://{settings.containerd_socket}",
        "oomScoreAdj": 0,
        "syncFrequency": "10s",
        "fileCheckFrequency": "5s",
        "nodeStatusUpdateFrequency": "4s",
        "configMapAndSecretChangeDetectionStrategy": "Watch",
        "resolvConf": "",
        # Nobody answers there, unless somebody wants to: pods keep what they are given at their
        # start, and a later answer is better than none for ever.
        "clusterDNS": [NODE_ADDRESS],
        "clusterDomain": "cluster.local",
        "podLogsDir": str(settings.cluster / "pod-logs"),
        "registerWithTaints": [],
        "maxPods": 110,
    }


def _proxy_config(settings: Settings) -> dict[str, object]:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": POD_SUBNET,
        "clientConnection": {"kubeconfig": f"{settings.cluster}/pki/proxy.kubeconfig"},
        # 0 leaves the kernel's own limit: writing it needs rights not every machine has.
        "conntrack": {"maxPerCore": 0},
    }


def containerctl(settings: Settings, *arguments: str) -> list[str]:
    """Return a ctr command in the namespace of Kubernetes."""
    return ["ctr", "--address", str(settings.containerd_socket), "-n", "k8s.io", *arguments]


def containerd_answers(settings: Settings) -> bool:
    """Whether containerd answers at its socket."""
    return succeeds(containerctl(settings, "version"))


def start_containerd(settings: Settings) -> None:
    """Start containerd and wait until it answers.

    Raises:
        ClusterError: it does not answer in time.
    """
    config = settings.cluster / "containerd.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(_containerd_config(settings), encoding="utf-8")
    network = settings.cluster / "cni" / "10-pods.conflist"
    network.parent.mkdir(exist_ok=True)
    network.write_text(json.dumps(_network_config(settings), indent=1), encoding="utf-8")
    log = settings.logs / "containerd.log"
    argv = ["containerd", "--config", str(config)]
    records = processes_folder(settings)
    start(records, name="containerd", argv=argv, log=log)

    def answers() -> bool:
        require_live(records, "containerd", log)
        return containerd_answers(settings)

    wait_until(
        answers,
        label="containerd ready",
        seconds=READY_SECONDS,
        why_not=lambda: f"end of its log:\n{tail(log)}",
    )


def node_is_ready(settings: Settings) -> bool:
    """Whether the API server has the node as Ready."""
    path = "{.status.conditions[?(@.type=='Ready')].status}"
    try:
        return output_of(kubectl(settings, "get", "node", NODE_NAME, "-o", f"jsonpath={path}")) == (
            "True"
        )
    except ClusterError:
        return False


def start_node(settings: Settings) -> None:
    """Start kubelet and kube-proxy, wait for Ready, and give the node its GPUs.

    Raises:
        ClusterError: the node is not Ready in time.
    """
    for hierarchy in cgroup_hierarchies():
        (hierarchy / settings.cgroup).mkdir(exist_ok=True)
    folder = settings.cluster
    for name, config in (
        ("kubelet", _kubelet_config(settings)),
        ("kube-proxy", _proxy_config(settings)),
    ):
        (folder / f"{name}.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    kubelet = [
        str(settings.binaries / "kubelet"),
        f"--config={folder / 'kubelet.json'}",
        f"--kubeconfig={folder / 'pki' / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE_NAME}",
        f"--root-dir={folder / 'kubelet'}",
        f"--cert-dir={folder / 'kubelet-certificates'}",
        f"--node-ip={NODE_ADDRESS}",
        f"--node-labels={NODE_LABELS}",
    ]
    proxy = [str(settings.binaries / "kube-proxy"), f"--config={folder / 'kube-proxy.json'}"]
    records, log = processes_folder(settings), settings.logs / "kubelet.log"
    start(records, name="kubelet", argv=kubelet, log=log, niceness=FIRST)
    proxy_log = settings.logs / "kube-proxy.log"
    start(records, name="kube-proxy", argv=proxy, log=proxy_log, niceness=FIRST)

    def ready() -> bool:
        require_live(records, "kubelet", log)
        return node_is_ready(settings)

    wait_until(
        ready,
        label="node ready",
        seconds=READY_SECONDS,
        why_not=lambda: f"end of the kubelet's log:\n{tail(log)}",
    )
    add_gpus(settings, node=NODE_NAME, count=GPU_COUNT)
