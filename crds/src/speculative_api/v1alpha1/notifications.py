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


def _all_events() -> list[NotificationEvent]:
    return list(NotificationEvent)


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
        default_factory=_all_events,
        min_length=1,
        max_length=4,
        description="What it is told of. Started: a canary is tried. Paused: it waits for a "
        "person. Promoted: it is stable. RolledBack: it was taken out, by evidence or by a person, "
        "or taken back under guard. Default: all four.",
    )
