"""Pure: the users' listener speaks TLS with a mounted certificate.

Envoy watches the mount itself: a renewed certificate (cert-manager's shape,
`tls.crt` and `tls.key`) is in use a moment after the kubelet swapped it, and one
that does not fit its key leaves the old one in use.
"""

from pathlib import Path, PurePath
from typing import Any

from .configuration import watched, wrapped

SDS_FILE = "sds.json"
NAME = "users"
VERSIONS = {"1.2": "TLSv1_2", "1.3": "TLSv1_3"}

_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3."


def transport_socket(folder: PurePath, *, minimum: str) -> dict[str, Any]:
    """The listener's; HTTP/2 is offered first.

    Args:
        minimum: of `VERSIONS`.
    """
    secret = {"name": NAME, "sds_config": watched(folder / SDS_FILE)}
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": _TYPE + "DownstreamTlsContext",
            "common_tls_context": {
                "tls_params": {"tls_minimum_protocol_version": VERSIONS[minimum]},
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificate_sds_secret_configs": [secret],
            },
        },
    }


def secret(mounted: Path) -> dict[str, Any]:
    """The file that tells Envoy where the certificate is, as a discovery response."""
    certificate = {
        "certificate_chain": {"filename": str(mounted / "tls.crt")},
        "private_key": {"filename": str(mounted / "tls.key")},
        "watched_directory": {"path": str(mounted)},
    }
    kind = "envoy.extensions.transport_sockets.tls.v3.Secret"
    return wrapped(kind, {"name": NAME, "tls_certificate": certificate})
