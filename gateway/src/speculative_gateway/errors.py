"""The gateway's own errors.

GatewayError
├── RouteRefused       what was asked for can't or must not be used; no retry
├── EnvoyUnreachable   its admin interface does not answer; try again soon
│   └── EnvoySlow      not in time; on a starved machine it serves all the same
└── ReadbackMismatch   Envoy answers, and does not use what was written
"""


class GatewayError(Exception):
    """Base of everything the gateway raises on purpose."""


class RouteRefused(GatewayError):
    """The route or its endpoints are wrong; the last good ones stay in use."""


class EnvoyUnreachable(GatewayError):
    """Envoy's admin interface did not answer, or answered with an error."""


class EnvoySlow(EnvoyUnreachable):
    """Envoy's admin interface did not answer in time: busy or frozen, not gone."""


class ReadbackMismatch(GatewayError):
    """Envoy does not use a written file's content after the deadline."""
