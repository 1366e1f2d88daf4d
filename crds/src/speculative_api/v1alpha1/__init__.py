"""The SpeculativeDeployment resource, version v1alpha1, as users write it.

The CRD's OpenAPI schema is generated from these models (`schema.py`); the
descriptions are user documentation and appear in `kubectl explain`. The
operator parses stored objects with them. Within this version a default never
changes, and a new field's default means the old behaviour. Everybody imports
from here; the modules below are how it is kept.
"""

from speculative_api.base import Model as Model
from speculative_api.base import rule as rule
from speculative_api.status import CanaryStatus as CanaryStatus
from speculative_api.status import Condition as Condition
from speculative_api.status import DriftBaseline as DriftBaseline
from speculative_api.status import DriftStatus as DriftStatus
from speculative_api.status import FailedRevision as FailedRevision
from speculative_api.status import GroupFailure as GroupFailure
from speculative_api.status import GuardStatus as GuardStatus
from speculative_api.status import IdleStatus as IdleStatus
from speculative_api.status import ParkedStatus as ParkedStatus
from speculative_api.status import PendingNotification as PendingNotification
from speculative_api.status import PreflightStatus as PreflightStatus
from speculative_api.status import RestartStatus as RestartStatus
from speculative_api.status import RetiringStatus as RetiringStatus
from speculative_api.status import SpeculativeDeploymentStatus as SpeculativeDeploymentStatus
from speculative_api.status import StableStatus as StableStatus
from speculative_api.status import Verdict as Verdict
from speculative_api.v1alpha1.adaptive import Adaptive as Adaptive
from speculative_api.v1alpha1.adaptive import AdaptiveMode as AdaptiveMode
from speculative_api.v1alpha1.analysis import Analysis as Analysis
from speculative_api.v1alpha1.analysis import AnalysisSource as AnalysisSource
from speculative_api.v1alpha1.analysis import MetricCheck as MetricCheck
from speculative_api.v1alpha1.analysis import MetricName as MetricName
from speculative_api.v1alpha1.analysis import PrometheusQuery as PrometheusQuery
from speculative_api.v1alpha1.analysis import PrometheusServer as PrometheusServer
from speculative_api.v1alpha1.analysis import SecretKey as SecretKey
from speculative_api.v1alpha1.autoscaling import Autoscaling as Autoscaling
from speculative_api.v1alpha1.autoscaling import Idle as Idle
from speculative_api.v1alpha1.autoscaling import Provider as Provider
from speculative_api.v1alpha1.autoscaling import ScalingMetric as ScalingMetric
from speculative_api.v1alpha1.autoscaling import ScalingMetricName as ScalingMetricName
from speculative_api.v1alpha1.autoscaling import Schedule as Schedule
from speculative_api.v1alpha1.common import ModelSource as ModelSource
from speculative_api.v1alpha1.common import Opaque as Opaque
from speculative_api.v1alpha1.common import Percent as Percent
from speculative_api.v1alpha1.drift import Drift as Drift
from speculative_api.v1alpha1.drift import DriftAction as DriftAction
from speculative_api.v1alpha1.engine import Engine as Engine
from speculative_api.v1alpha1.engine import Warmup as Warmup
from speculative_api.v1alpha1.engine import WorkerTls as WorkerTls
from speculative_api.v1alpha1.gateway import MEMBER_SETTINGS as MEMBER_SETTINGS
from speculative_api.v1alpha1.gateway import SHARED_SETTINGS as SHARED_SETTINGS
from speculative_api.v1alpha1.gateway import Gateway as Gateway
from speculative_api.v1alpha1.gateway import GatewayMode as GatewayMode
from speculative_api.v1alpha1.gateway import GatewayService as GatewayService
from speculative_api.v1alpha1.gateway import LaneRule as LaneRule
from speculative_api.v1alpha1.gateway import Lanes as Lanes
from speculative_api.v1alpha1.gateway import NativeLane as NativeLane
from speculative_api.v1alpha1.gateway import Timeouts as Timeouts
from speculative_api.v1alpha1.gateway_access import Auth as Auth
from speculative_api.v1alpha1.gateway_access import RateLimit as RateLimit
from speculative_api.v1alpha1.gateway_api import BackendKind as BackendKind
from speculative_api.v1alpha1.gateway_api import EndpointPickerRef as EndpointPickerRef
from speculative_api.v1alpha1.gateway_api import ParentRef as ParentRef
from speculative_api.v1alpha1.gateway_api import PickerFailureMode as PickerFailureMode
from speculative_api.v1alpha1.notifications import Notification as Notification
from speculative_api.v1alpha1.notifications import NotificationEvent as NotificationEvent
from speculative_api.v1alpha1.notifications import NotificationFormat as NotificationFormat
from speculative_api.v1alpha1.notifications import UrlSecret as UrlSecret
from speculative_api.v1alpha1.pod import HugePages as HugePages
from speculative_api.v1alpha1.pod import ModelCache as ModelCache
from speculative_api.v1alpha1.pod import Pod as Pod
from speculative_api.v1alpha1.pod import Rdma as Rdma
from speculative_api.v1alpha1.pod import Spot as Spot
from speculative_api.v1alpha1.rollout import Capacity as Capacity
from speculative_api.v1alpha1.rollout import CleanUp as CleanUp
from speculative_api.v1alpha1.rollout import CleanUpMode as CleanUpMode
from speculative_api.v1alpha1.rollout import Guard as Guard
from speculative_api.v1alpha1.rollout import GuardKeep as GuardKeep
from speculative_api.v1alpha1.rollout import InconclusivePolicy as InconclusivePolicy
from speculative_api.v1alpha1.rollout import PauseStep as PauseStep
from speculative_api.v1alpha1.rollout import Place as Place
from speculative_api.v1alpha1.rollout import Rollout as Rollout
from speculative_api.v1alpha1.rollout import RolloutStep as RolloutStep
from speculative_api.v1alpha1.rollout import ShadowStep as ShadowStep
from speculative_api.v1alpha1.simulation import Fault as Fault
from speculative_api.v1alpha1.simulation import Simulation as Simulation
from speculative_api.v1alpha1.spec import REVISIONED_FIELDS as REVISIONED_FIELDS
from speculative_api.v1alpha1.spec import SpeculativeDeploymentSpec as SpeculativeDeploymentSpec
from speculative_api.v1alpha1.speculation import Draft as Draft
from speculative_api.v1alpha1.speculation import Method as Method
from speculative_api.v1alpha1.speculation import NGramLookup as NGramLookup
from speculative_api.v1alpha1.speculation import Speculation as Speculation
from speculative_api.v1alpha1.target import Adapter as Adapter
from speculative_api.v1alpha1.target import Dtype as Dtype
from speculative_api.v1alpha1.target import Lora as Lora
from speculative_api.v1alpha1.target import Target as Target

MAX_NAME_LENGTH = 40
"""Longest resource name: children append a 10-character hash and a suffix."""
MAX_GROUP_NAME_LENGTH = 34
"""The same with `target.nodesPerReplica` above 1: a group's StatefulSet is named
`NAME-HASH-g-INDEX`, and Kubernetes labels its pods with that name, a hyphen and 10 characters more,
of 63 that a label may have."""
