"""Pure: the route's rules about lanes, as entries of Envoy's route table.

An entry is the lane's own with another match, so that both behave alike in all
else. Called by `routes`.
"""

from collections.abc import Mapping
from typing import Any

from speculative_api import gateway, labels

Entry = Mapping[str, Any]


def by_rule(route: gateway.Route, *, native: Entry, accelerated: Entry) -> list[dict[str, Any]]:
    """Entries in order, to stand between the native lane's own and the rest.

    Whoever names a lane gets it. A rule towards native waits until there is
    one: its requests were not promised to go there.
    """
    if not route.lane_rules:
        return []
    lanes: dict[str, Entry] = {"accelerated": accelerated}
    if route.native is not None:
        lanes["native"] = native
    asked = {"prefix": "/v1/", "headers": [_equal(labels.LANE_HEADER, "accelerated")]}
    return [
        {**accelerated, "match": asked},
        *(
            {**lanes[rule.lane], "match": _match(rule)}
            for rule in route.lane_rules
            if rule.lane in lanes
        ),
    ]


def _match(rule: gateway.LaneRule) -> dict[str, Any]:
    """All that a rule names must hold."""
    headers = []
    if rule.header is not None:
        headers.append(_equal(rule.header.name, rule.header.value))
    if rule.model is not None:
        headers.append(_equal(labels.MODEL_HEADER, rule.model))
    match: dict[str, Any] = {"headers": headers} if headers else {}
    if rule.path is not None:
        match["path_separated_prefix"] = rule.path
    else:
        match["prefix"] = "/v1/"
    if rule.percent is not None:
        share = {"numerator": rule.percent, "denominator": "HUNDRED"}
        match["runtime_fraction"] = {"default_value": share}
    return match


def _equal(header: str, value: str) -> dict[str, Any]:
    return {"name": header.lower(), "string_match": {"exact": value}}
