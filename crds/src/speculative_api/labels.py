"""Names that appear on Kubernetes objects: labels, annotations, ports.

Used by the operator (renders them), the gateway (selects by them) and the cli.
"""

from typing import Final

GROUP: Final = "speculative.dev"
VERSION: Final = "v1alpha1"
PLURAL: Final = "speculativedeployments"
KIND: Final = "SpeculativeDeployment"

MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "speculative-operator"
NAME: Final = f"{GROUP}/name"
"""Name of the owning SpeculativeDeployment, on every child."""
COMPONENT: Final = f"{GROUP}/component"
"""`worker`, `follower`, `gateway`, `preflight` or `download`."""
REVISION: Final = f"{GROUP}/revision"
"""Revision hash, on worker pods and everything that belongs to one revision."""
CAPACITY: Final = f"{GROUP}/capacity"
"""`reserved` or `spot`, on the pods of a revision that is divided (`pod.spot`)."""
TRACK: Final = f"{GROUP}/track"
"""`stable`, `canary`, `previous`, `native` or `retiring`; only on a Deployment's own metadata,
never on pods: promotion relabels and nothing restarts."""

EVIDENCE_SUFFIX: Final = "-evidence"
"""Ends the name of the ConfigMap with what was measured about a canary."""
COMPONENT_WORKER: Final = "worker"
COMPONENT_FOLLOWER: Final = "follower"
"""Pods of a group (`target.nodesPerReplica`) but its leader, which alone is a `worker`: nobody
sends requests to them, asks them, or counts them."""
COMPONENT_GATEWAY: Final = "gateway"
COMPONENT_PREFLIGHT: Final = "preflight"
"""Pods of the Job that checks a revision before one of its pods holds a GPU."""
COMPONENT_DOWNLOAD: Final = "download"
"""Pods of the Job that fetches a revision's models; they serve a digest meanwhile."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""On the pods of a Job, by Kubernetes itself."""

GROUPS_NAME: Final = "leaderworkerset.sigs.k8s.io/name"
"""Label on every pod of a group, by the LeaderWorkerSet's controller: name of the set."""
LEADER_NAME: Final = "leaderworkerset.sigs.k8s.io/leader-name"
"""Annotation on a follower, by the LeaderWorkerSet's controller: name of its leader's pod."""

PROMOTE: Final = f"{GROUP}/promote"
"""Annotation `<hash>/<step>[@<anything>]`: go past the pause that this canary is in;
`<hash>/<step>/skip` past the step, whichever it is; `<hash>/full` past all that are left. Steps
count from 0. A value that was there before a trial began is not meant for it."""
PROMOTE_IN_FULL: Final = "full"
SKIPPED_STEP: Final = "skip"
ABORT: Final = f"{GROUP}/abort"
"""Annotation `<hash>[@<anything>]`: roll this canary back; likewise."""
RETRY: Final = f"{GROUP}/retry"
"""Annotation `<hash>@<anything>`: forget that this hash failed; acted on once per value."""

RESTART: Final = f"{GROUP}/restart"
"""Annotation `<hash>[/rerender]@<anything>`: replace stable's pods one at a time; acted on once
per value."""
RERENDER: Final = "rerender"
RESTARTED_AT: Final = f"{GROUP}/restarted-at"
"""Annotation on worker pods and their template: when the restart that made them was begun."""
RENDER: Final = f"{GROUP}/render"
"""Annotation on a ControllerRevision: which rendering of the words it is; absent: the first."""

RECOVER: Final = f"{GROUP}/recover"
"""Annotation `<hash>[/rebaseline]@<anything>`: end what drift did to stable and judge it anew,
against the same baseline or a new one; acted on once per value."""
REBASELINE: Final = "rebaseline"

PAUSE: Final = f"{GROUP}/pause"
"""Annotation `<hash>`: hold this canary, or this revision's guard, where it is; absent: go on."""
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"
"""Annotation, as with Deployments: why the spec was changed; kept with the revision."""

SHARED_GATEWAY: Final = f"{GROUP}/gateway"
"""Name of the shared gateway, on everything that belongs to it or that its agents read."""
MEMBER_ROUTE_SUFFIX: Final = "-member"
"""Ends the name of the ConfigMap with the route of one member of a shared gateway."""

ENGINE_PORT: Final = 8000
"""The engine's OpenAI API, on every worker pod."""
WORKER_PORT: Final = 8001
"""The worker's probes and digest."""
GATEWAY_PORT: Final = 8080
"""Where users send requests."""
AGENT_PORT: Final = 8081
"""The gateway agent's /state, /readyz, /livez and /metrics."""
WAITING_PORT: Final = 8082
"""Where the gateway agent takes requests that find no worker; on loopback inside its pod."""
ENVOY_ADMIN_PORT: Final = 9901
"""Envoy's admin interface; bound to loopback inside the gateway pod."""

LANE_HEADER: Final = "x-speculative-lane"
"""Request header; `native` chooses the lane without speculation. Response header: the lane."""
MODEL_HEADER: Final = "x-model"
"""Request header that names a model: the gateway does not read bodies."""
REVISION_HEADER: Final = "x-speculative-revision"
"""Response header: the revision that answered."""
WORKER_THERE_HEADER: Final = "x-speculative-worker-there"
"""Of the agent's answers to Envoy: a request that waited may go to a worker now."""
CLIENT_HEADER: Final = "x-speculative-client"
"""Request header that the gateway sets: name of the API key. A client's own is dropped."""
