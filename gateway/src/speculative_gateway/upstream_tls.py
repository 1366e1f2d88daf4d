"""Pure: Envoy speaks TLS to a revision's engines and believes only who its Secret vouches for.

The authority's certificate is a mounted file that Envoy watches: a renewed one
is in use a moment after the kubelet swapped it, and nothing of ours is asked.
Probes go to the worker's own port, which is plain HTTP.
"""

from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from speculative_api import gateway

from .configuration import watched, wrapped

AUTHORITY_KEY = "ca.crt"
"""The entry of the Secret."""
PROBE = {"speculative.probe": True}
"""What a probe asks of a cluster's sockets."""

_TYPE = "type.googleapis.com/envoy.extensions.transport_sockets."


def file_of(authority: str) -> str:
    """The file that tells Envoy where an authority's certificate is."""
    return f"sds-authority-{authority}.json"


def authority_files(folder: Path, authorities: tuple[str, ...]) -> dict[str, Mapping[str, Any]]:
    """Discovery responses by file name; `folder` holds a folder for each Secret."""
    return {
        file_of(name): wrapped(
            "envoy.extensions.transport_sockets.tls.v3.Secret",
            {
                "name": name,
                "validation_context": {
                    "trusted_ca": {"filename": str(folder / name / AUTHORITY_KEY)},
                    "watched_directory": {"path": str(folder / name)},
                },
            },
        )
        for name in authorities
    }


def encrypted(tls: gateway.BackendTls | None, folder: PurePath) -> dict[str, Any]:
    """Fields of the cluster; none for plain HTTP."""
    if tls is None:
        return {}
    source = {"name": tls.authority, "sds_config": watched(folder / file_of(tls.authority))}
    named = [{"san_type": "DNS", "matcher": {"exact": tls.server_name}}]
    context = {
        "@type": _TYPE + "tls.v3.UpstreamTlsContext",
        "sni": tls.server_name,
        "common_tls_context": {
            "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
            "combined_validation_context": {
                "default_validation_context": {"match_typed_subject_alt_names": named},
                "validation_context_sds_secret_config": source,
            },
        },
    }
    plain = {
        "name": "envoy.transport_sockets.raw_buffer",
        "typed_config": {"@type": _TYPE + "raw_buffer.v3.RawBuffer"},
    }
    return {
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": context},
        "transport_socket_matches": [
            {"name": "probes", "match": PROBE, "transport_socket": plain},
        ],
    }
