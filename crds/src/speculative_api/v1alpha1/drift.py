"""What happens when a long-running revision accepts less than it used to."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model, configuration, rule


class DriftAction(StrEnum):
    """What is done about it."""

    ALERT = "Alert"
    RECYCLE_PODS = "RecyclePods"
    DISABLE_SPECULATION = "DisableSpeculation"


class Drift(Model):
    """Stable is judged against its own first hours, for as long as it serves."""

    model_config = configuration(
        rule(
            "self.action == 'RecyclePods' || self.maxRecycles == 3",
            "maxRecycles belongs to action RecyclePods: leave it out",
            ".maxRecycles",
        )
    )
    action: DriftAction = Field(
        default=DriftAction.ALERT,
        description="Alert: the condition AcceptanceDrifted, an event, a metric, and a "
        "notification for receivers of Drifted. RecyclePods: the same, and stable's pods are "
        "replaced one at a time, drained, and judged anew against the same baseline. "
        "DisableSpeculation: the same, and pods without speculation start beside stable's, which "
        "keep running, and take the traffic as they become ready; it comes back with `kubectl "
        "speculative recover` or a new spec. Default Alert.",
    )
    min_percent_of_baseline: int = Field(
        default=80,
        ge=1,
        le=99,
        description="Accepted draft tokens per step, at least this percent of the baseline's. "
        "Default 80.",
    )
    baseline_seconds: int = Field(
        default=14_400,
        ge=600,
        le=86_400,
        description="How long the baseline is measured, from the end of the rollout that made the "
        "revision stable; hours without requests do not count. A block of evidence is a sixtieth "
        "of it, and evidence begins anew after six times as long. Default 14400, four hours.",
    )
    max_recycles: int = Field(
        default=3,
        ge=1,
        le=10,
        description="RecyclePods only: recycles in a row that did not bring acceptance back, "
        "after which pods are left alone until somebody says `kubectl speculative recover`. The "
        "wait between two of them is baselineSeconds, and doubles with each in vain. Default 3.",
    )
