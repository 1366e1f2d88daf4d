"""A revision divided over reserved and spot nodes: its floor, its share, and where pods may go."""

import itertools
from typing import Any

import pytest
from tests.builders import NAME, a_spec

from speculative_api import labels
from speculative_api.v1alpha1 import Spot
from speculative_operator.decision import Scale
from speculative_operator.desired import checks
from speculative_operator.desired.revision import words_of
from speculative_operator.desired.spot import Part, parts, pods_on_spot
from speculative_operator.desired.workers import pod_template, worker_deployment
from speculative_operator.settings import Settings

LABEL = {"key": "karpenter.sh/capacity-type", "value": "spot"}
SETTINGS = Settings(worker_image="worker:1")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def a_spot(**fields: Any) -> Spot:
    return Spot.model_validate({"nodeLabel": LABEL, "percent": 50, **fields})


ANY_SPOT = a_spot()


@pytest.mark.parametrize(
    ("replicas", "fields", "native", "expected"),
    [
        (0, {}, False, 0),
        (1, {}, False, 0),
        (2, {}, False, 1),
        (5, {}, False, 2),
        (5, {"percent": 100}, False, 4),
        (5, {"percent": 100, "minReserved": 0}, False, 5),
        (5, {"percent": 80, "minReserved": 3}, False, 2),
        (2, {"minReserved": 9}, False, 0),
        (4, {"nativePercent": 100}, True, 4),
        (4, {}, True, 0),
    ],
)
def test_share_and_floor(
    replicas: int, fields: dict[str, Any], native: bool, expected: int
) -> None:
    assert pods_on_spot(replicas, a_spot(**fields), native=native) == expected


def test_one_pod_more_or_less_moves_no_other() -> None:
    for percent, floor in itertools.product((1, 10, 33, 50, 67, 99, 100), (0, 1, 2, 7, 60)):
        spot = ANY_SPOT.model_copy(update={"percent": percent, "min_reserved": floor})
        on_spot = [pods_on_spot(replicas, spot, native=False) for replicas in range(41)]
        assert {after - before for before, after in itertools.pairwise(on_spot)} <= {0, 1}
        for replicas, there in enumerate(on_spot):
            assert replicas - there >= min(replicas, floor)
            assert there * 100 <= replicas * percent


def divided(pod: dict[str, Any] | None = None, replicas: int = 4) -> tuple[Part, Part]:
    block = {"spot": {"nodeLabel": LABEL, "percent": 50}, **(pod or {})}
    words = words_of(a_spec(pod=block))
    template = pod_template(words, name=NAME, settings=SETTINGS)
    found = parts(Scale(words.hash, "stable", replicas), template, words.canonical)
    assert [part.capacity for part in found] == ["reserved", "spot"]
    return found[0], found[1]


def test_reserved_pods_are_never_on_spot_nodes() -> None:
    reserved, spot = divided()
    (term,) = reserved.template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": LABEL["key"], "operator": "NotIn", "values": ["spot"]}
    ]
    assert REQUIRED not in spot.template["spec"]["affinity"]["nodeAffinity"]


def test_spot_pods_prefer_and_tolerate_spot_nodes() -> None:
    reserved, spot = divided()
    (preference,) = spot.template["spec"]["affinity"]["nodeAffinity"][PREFERRED]
    assert preference["weight"] == 100
    own = {"key": LABEL["key"], "operator": "Equal", "value": "spot"}
    assert own in spot.template["spec"]["tolerations"]
    assert own not in reserved.template["spec"]["tolerations"]


def test_the_user_s_affinity_stays() -> None:
    zones = [{"key": "zone", "operator": "In", "values": [zone]} for zone in ("a", "b")]
    terms = [{"matchExpressions": [zone]} for zone in zones]
    affinity = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {"x": []},
    }
    reserved, spot = divided({"affinity": affinity})
    found = reserved.template["spec"]["affinity"]
    # Terms are alternatives: in each of them spot nodes are excluded.
    assert [
        [expression["operator"] for expression in term["matchExpressions"]]
        for term in found["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    ] == [["In", "NotIn"], ["In", "NotIn"]]
    assert found["podAntiAffinity"] == {"x": []}
    assert spot.template["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == terms


def test_the_two_deployments_select_different_pods_of_one_revision() -> None:
    found = [
        worker_deployment(
            Scale("a" * 10, "stable", 4),
            part.template,
            name=NAME,
            metadata={},
            capacity=part.capacity,
            replicas=part.replicas,
        )
        for part in divided()
    ]
    assert [body["metadata"]["name"] for body in found] == [
        "chat-aaaaaaaaaa",
        "chat-aaaaaaaaaa-spot",
    ]
    assert [body["spec"]["replicas"] for body in found] == [2, 2]
    for body in found:
        pods = body["spec"]["template"]["metadata"]["labels"]
        assert body["spec"]["selector"]["matchLabels"].items() <= pods.items()
        assert pods[labels.REVISION] == "a" * 10
    one, other = (body["spec"]["selector"]["matchLabels"][labels.CAPACITY] for body in found)
    assert (one, other) == ("reserved", "spot")


def test_without_spot_a_revision_is_one_deployment_as_before() -> None:
    words = words_of(a_spec())
    template = pod_template(words, name=NAME, settings=SETTINGS)
    scale = Scale(words.hash, "stable", 4)
    assert parts(scale, template, words.canonical) == (Part("", 4, template),)
    labels_ = worker_deployment(scale, template, name=NAME, metadata={})["metadata"]["labels"]
    assert labels.CAPACITY not in labels_


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {
                "pod": {
                    "spot": {"nodeLabel": LABEL, "percent": 50},
                    "nodeSelector": {LABEL["key"]: "spot"},
                }
            },
            "keeps the reserved pods away from",
        ),
        ({"pod": {"spot": {"nodeLabel": LABEL, "nativePercent": 50}}}, "puts no pod on a spot"),
        ({"pod": {"spot": {"nodeLabel": LABEL, "percent": 50}}}, ""),
    ],
)
def test_what_divides_nothing_is_refused(spec: dict[str, Any], said: str) -> None:
    found = checks.findings(a_spec(**spec), name=NAME, settings=SETTINGS)
    assert bool(found) is bool(said)
    assert all(said in text for text in found)
