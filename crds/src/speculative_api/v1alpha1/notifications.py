"""Who is told of a rollout, and of what."""

from enum import StrEnum

from pydantic import Field

from speculative_api.base import Model


class NotificationFormat(StrEnum):
    """What a receiver understands."""

    SLACK = "Slack"
    CLOUD_EVENTS = "CloudEvents"


class NotificationEvent(StrEnum):
    """What one may be told of."""

    STARTED = "Started"
    PAUSED = "Paused"
    PROMOTED = "Promoted"
    ROLLED_BACK = "RolledBack"
    DRIFTED = "Drifted"


class UrlSecret(Model):
    """One key of a Secret in the namespace of the resource."""

    name: str = Field(
        pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        max_length=253,
        description="The Secret. The operator may read it only if a Role says so "
        "(docs/notifications.md).",
    )
    key: str = Field(
        default="url",
        pattern=r"^[-._a-zA-Z0-9]+$",
        max_length=253,
        description="The key in it. Default url.",
    )


def _of_rollouts() -> list[NotificationEvent]:
    """Fixed within this version: receivers that list nothing are told of nothing new."""
    return [
        NotificationEvent.STARTED,
        NotificationEvent.PAUSED,
        NotificationEvent.PROMOTED,
        NotificationEvent.ROLLED_BACK,
    ]


class Notification(Model):
    """One receiver: an HTTP endpoint that takes a POST."""

    url_secret: UrlSecret = Field(
        description="Where the URL stands, http or https; it is read at each delivery and shown "
        "nowhere."
    )
    format: NotificationFormat = Field(
        default=NotificationFormat.SLACK,
        description="Slack: JSON with a text, as Slack and those compatible with it take it. "
        "CloudEvents: version 1.0, structured JSON. Default Slack.",
    )
    events: list[NotificationEvent] = Field(
        default_factory=_of_rollouts,
        min_length=1,
        max_length=5,
        description="What it is told of. Started: a canary is tried. Paused: it waits for a "
        "person. Promoted: it is stable. RolledBack: it was taken out, by evidence or by a person, "
        "or taken back under guard. Drifted: stable accepts less than it used to, what was done "
        "about it, and that it is back (rollout.drift). Default: all but Drifted.",
    )
