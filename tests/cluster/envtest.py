"""A real API server with its etcd, and nothing else: no controllers, no kubelet, no node.

Built by the cluster tool (`make cluster-up` leaves the binaries behind). Started
once per test run on free loopback ports; ended by the handles of its processes.
"""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tests.ports import free_port, free_ports
from tests.processes import end

from speculative_operator.cluster.access import Access

READY_SECONDS = 120.0
"""A loaded machine of two cores needs up to 40 s."""
TOKEN = "test-admin"
AUDITED = Path(__file__).parents[2] / "e2e" / "cluster" / "audit-policy.yaml"
CRD = Path(__file__).parents[2] / "crds" / "speculativedeployments.yaml"


@dataclass(frozen=True)
class Server:
    """Where it is and how to get in as administrator; `folder` holds its logs.

    The token `test-NAME` makes an administrator called NAME, whom the audit log names.
    """

    url: str
    folder: Path
    parts: dict[str, "Part"] = field(default_factory=dict)
    """`etcd` and `apiserver`, for those who end one of them and start it again."""

    @property
    def access(self) -> Access:
        async def authorization() -> str:
            return f"Bearer {TOKEN}"

        return Access(self.url, _unverified(), authorization)

    def audited(self) -> list[dict[str, Any]]:
        """Every write that was answered so far, in the order of arrival."""
        with (self.folder / "audit.log").open(encoding="utf-8") as lines:
            events = [json.loads(line) for line in lines if line.endswith("\n")]
        done = [event for event in events if event["stage"] == "ResponseComplete"]
        return sorted(done, key=lambda event: str(event["requestReceivedTimestamp"]))

    def raw(self, method: str, path: str, body: bytes = b"") -> bytes:
        """One plain request; urllib raises on 4xx and 5xx."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/yaml"}
        request = urllib.request.Request(
            self.url + path, data=body or None, method=method, headers=headers
        )
        with urllib.request.urlopen(request, context=_unverified(), timeout=20) as answer:
            found: bytes = answer.read()
            return found


class Part:
    """A process of the control plane; `stop` and `start` make a restart."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self._argv = argv
        self._log = log
        self.process: subprocess.Popen[bytes]

    def start(self) -> None:
        """Starts it; its log goes on."""
        with self._log.open("ab") as file:
            self.process = subprocess.Popen(self._argv, stdout=file, stderr=file)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that does not follow."""
        end(self.process, seconds=10)


def binary_folder() -> Path:
    """Where the cluster tool keeps what it built."""
    default = Path(os.environ.get("HOME", "/root")) / ".cache" / "speculative-operator"
    return Path(os.environ.get("SPECULATIVE_HOME") or default) / "bin"


def make_certificates(folder: Path) -> None:
    """`proxy-ca`, and from it the aggregator's `front-proxy` and somebody else's `other`."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = folder / "proxy-ca"
    files = ("-keyout", f"{ca}.key", "-out", f"{ca}.crt")
    _openssl("req", "-x509", *curve, *files, "-subj", "/CN=proxy-ca", "-days", "2")
    for name in ("front-proxy", "other", "served"):
        stem = folder / name
        _openssl(
            "req", *curve, "-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", f"/CN={name}"
        )
        (folder / "names").write_text("subjectAltName=DNS:metrics.default.svc,DNS:localhost\n")
        signed = ("-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-days", "2")
        sources = ("-in", f"{stem}.csr", "-extfile", str(folder / "names"))
        _openssl("x509", "-req", *sources, "-out", f"{stem}.crt", *signed)


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@contextmanager
def controller_manager(server: "Server", *controllers: str) -> Iterator[None]:
    """The real controllers of these names against the server, until the block ends."""
    kubeconfig = server.folder / "controllers.kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}
        ],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    kubeconfig.write_text(yaml.safe_dump(document))
    argv = [
        str(binary_folder() / "kube-controller-manager"),
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        f"--cert-dir={server.folder}",
        "--horizontal-pod-autoscaler-sync-period=1s",
    ]
    with _process(argv, server.folder / "controllers.log"):
        yield


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    """An API server with our CRD established; everything in `folder`."""
    apiserver, etcd = binary_folder() / "kube-apiserver", shutil.which("etcd")
    if not apiserver.exists() or etcd is None:
        raise FileNotFoundError(f"{apiserver} or etcd is missing: run `make cluster-up` once")
    ports = free_ports(3)
    key = folder / "service-accounts.key"
    subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
    make_certificates(folder)
    people = ("admin", "one", *"abcdef")
    tokens = [f'test-{name},{name},{name},"system:masters"\n' for name in people]
    (folder / "tokens.csv").write_text("".join([*tokens, "test-nobody,nobody,nobody\n"]))
    with ExitStack() as stack:
        client, peer = f"http://127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
        parts: dict[str, Part] = {}
        parts["etcd"] = stack.enter_context(
            _process(
                [
                    etcd,
                    f"--data-dir={folder / 'etcd'}",
                    f"--listen-client-urls={client}",
                    f"--advertise-client-urls={client}",
                    f"--listen-peer-urls={peer}",
                    f"--initial-advertise-peer-urls={peer}",
                    f"--initial-cluster=default={peer}",
                    "--unsafe-no-fsync",
                ],
                folder / "etcd.log",
            )
        )
        parts["apiserver"] = stack.enter_context(
            _process(
                [
                    str(apiserver),
                    f"--etcd-servers={client}",
                    "--bind-address=127.0.0.1",
                    f"--secure-port={ports[2]}",
                    f"--cert-dir={folder}",
                    f"--token-auth-file={folder / 'tokens.csv'}",
                    f"--service-account-key-file={key}",
                    f"--service-account-signing-key-file={key}",
                    "--service-account-issuer=https://kubernetes.default.svc",
                    "--service-cluster-ip-range=10.200.0.0/16",
                    "--authorization-mode=RBAC",
                    # On by default from 1.35 on.
                    "--feature-gates=ImageVolume=true",
                    "--disable-admission-plugins=ServiceAccount",
                    f"--requestheader-client-ca-file={folder / 'proxy-ca.crt'}",
                    "--requestheader-allowed-names=front-proxy",
                    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                    "--requestheader-group-headers=X-Remote-Group",
                    "--requestheader-username-headers=X-Remote-User",
                    f"--proxy-client-cert-file={folder / 'front-proxy.crt'}",
                    f"--proxy-client-key-file={folder / 'front-proxy.key'}",
                    f"--audit-policy-file={AUDITED}",
                    f"--audit-log-path={folder / 'audit.log'}",
                ],
                folder / "apiserver.log",
            )
        )
        server = Server(f"https://127.0.0.1:{ports[2]}", folder, parts)
        process = parts["apiserver"].process
        _wait_until_ready(server, process, folder / "apiserver.log")
        _install_crd(server)
        yield server


def _unverified() -> ssl.SSLContext:
    """The server's certificate is its own, of this minute, on loopback."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@contextmanager
def _process(argv: list[str], log: Path) -> Iterator[Part]:
    part = Part(argv, log)
    part.start()
    try:
        yield part
    finally:
        part.stop()


def _wait_until_ready(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    limit = time.monotonic() + READY_SECONDS
    while not _is_ready(server):
        tail = log.read_text(errors="replace")[-2000:]
        assert process.poll() is None, f"the API server ended: {tail}"
        assert time.monotonic() < limit, f"not ready in time: {tail}"
        time.sleep(0.2)


def _is_ready(server: Server) -> bool:
    try:
        return server.raw("GET", "/readyz") == b"ok"
    except OSError:
        return False


def _install_crd(server: Server) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    server.raw("POST", crds, CRD.read_bytes())
    name = yaml.safe_load(CRD.read_text())["metadata"]["name"]
    limit = time.monotonic() + READY_SECONDS
    while not _is_established(yaml.safe_load(server.raw("GET", f"{crds}/{name}"))):
        assert time.monotonic() < limit, "the CRD was not established"
        time.sleep(0.1)


def _is_established(crd: dict[str, Any]) -> bool:
    conditions = crd.get("status", {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)
