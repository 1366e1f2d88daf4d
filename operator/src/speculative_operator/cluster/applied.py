"""Who sets `spec.replicas` again with every apply of a manifest. Pure; called by the stores.

Beside an autoscaler that is a second writer of one number: pods come and go
with every sync of a repository. What is found out here is kept of an object
whose managed fields are not.
"""

import json
from typing import Any, Final

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
NOTE: Final = "replicasAppliedBy"
"""Key in the kept metadata; nothing is ever written with it."""


def replicas_applied_by(metadata: dict[str, Any]) -> str:
    """Name of whoever applies `spec.replicas`; empty where nobody does.

    A scale, by a person or an autoscaler, is an update and none of these.
    """
    for entry in metadata.get("managedFields") or ():
        fields = (entry.get("fieldsV1") or {}).get("f:spec") or {}
        if entry.get("operation") == "Apply" and "f:replicas" in fields:
            return str(entry.get("manager") or "a client")[:128]
    applied = (metadata.get("annotations") or {}).get(LAST_APPLIED, "")
    if '"replicas"' in applied and '"autoscaling"' in applied:
        try:
            spec = json.loads(applied).get("spec")
        except (ValueError, AttributeError):
            return ""
        if isinstance(spec, dict) and "replicas" in spec:
            return "kubectl apply"
    return str(metadata.get(NOTE, ""))


def warning(metadata: dict[str, Any], *, autoscaled: bool) -> str:
    """The sentence beside Accepted; empty where there is nothing to say."""
    who = str(metadata.get(NOTE, ""))
    if not who or not autoscaled:
        return ""
    return (
        f"spec.replicas is set by {who} each time it applies the manifest, and by the autoscaler: "
        "leave it out of the manifest"
    )
