"""Certificates and kubeconfig files of the local cluster, made with openssl."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path

from .commands import output_of
from .settings import NODE_ADDRESS, NODE_NAME, SERVICE_KUBERNETES

_DAYS = "30"
"""Made anew at every start, so a month is ample."""

_CERTIFICATES = (
    (
        "apiserver",
        "/CN=kube-apiserver",
        f"IP:127.0.0.1,IP:{SERVICE_KUBERNETES},IP:{NODE_ADDRESS},DNS:localhost,DNS:kubernetes,"
        "DNS:kubernetes.default,DNS:kubernetes.default.svc",
    ),
    ("admin", "/O=system:masters/CN=admin", "DNS:admin"),
    ("controller-manager", "/CN=system:kube-controller-manager", "DNS:controller-manager"),
    ("scheduler", "/CN=system:kube-scheduler", "DNS:scheduler"),
    ("proxy", "/CN=system:kube-proxy", "DNS:proxy"),
    (
        "kubelet",
        f"/O=system:nodes/CN=system:node:{NODE_NAME}",
        f"DNS:{NODE_NAME},IP:127.0.0.1,IP:{NODE_ADDRESS}",
    ),
    ("front-proxy", "/CN=front-proxy", "DNS:front-proxy"),
)
"""File name, subject and alternative names; subjects are those RBAC knows."""


def _openssl(*arguments: str) -> None:
    output_of(["openssl", *arguments])


def make_certificates(folder: Path) -> None:
    """Make a certificate authority and every certificate of the cluster.

    Raises:
        ClusterError: openssl failed.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    authority = ("-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.crt")
    _openssl("req", "-x509", *curve, *authority, "-subj", "/CN=local-ca", "-days", _DAYS)
    for name, subject, alternatives in _CERTIFICATES:
        stem = f"{folder}/{name}"
        _openssl("req", *curve, "-keyout", f"{stem}.key", "-out", f"{stem}.csr", "-subj", subject)
        extensions = folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={alternatives}\n", encoding="utf-8")
        signed = ("-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key", "-CAcreateserial")
        files = ("-in", f"{stem}.csr", "-out", f"{stem}.crt", "-extfile", str(extensions))
        _openssl("x509", "-req", *files, *signed, "-days", _DAYS)
    curve_only = ("-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    _openssl("genpkey", *curve_only, "-out", f"{folder}/service-accounts.key")
    key = ("-in", f"{folder}/service-accounts.key", "-out", f"{folder}/service-accounts.pub")
    _openssl("pkey", *key, "-pubout")


def kubeconfig(folder: Path, *, user: str, server: str) -> str:
    """Return a kubeconfig with everything inside it, so that it can be copied."""

    def embedded(name: str) -> str:
        return base64.b64encode((folder / name).read_bytes()).decode()

    return "\n".join(
        (
            "apiVersion: v1",
            "kind: Config",
            "clusters:",
            "- name: speculative-local",
            "  cluster:",
            f"    server: {server}",
            f"    certificate-authority-data: {embedded('ca.crt')}",
            "users:",
            f"- name: {user}",
            "  user:",
            f"    client-certificate-data: {embedded(user + '.crt')}",
            f"    client-key-data: {embedded(user + '.key')}",
            "contexts:",
            "- name: speculative-local",
            f"  context: {{cluster: speculative-local, user: {user}}}",
            "current-context: speculative-local",
            "",
        )
    )


def write_kubeconfigs(folder: Path, *, users: Sequence[str], server: str) -> None:
    """Write a kubeconfig beside the certificates for each user."""
    for user in users:
        path = folder / f"{user}.kubeconfig"
        path.write_text(kubeconfig(folder, user=user, server=server), encoding="utf-8")
        path.chmod(0o600)
