"""Pure: samples become states, states become metrics."""

from tests.gateway.test_configuration import FOLDER, ROUTES

from speculative_api import gateway
from speculative_gateway.admin import Host
from speculative_gateway.render import rendered
from speculative_gateway.state import Sample, metrics

A, B, C = "a" * 10, "b" * 10, "c" * 10


def a_sample(**weights: int) -> Sample:
    """Stable with two hosts, one of them failing, and a canary; `weights` are the runtime's."""
    return Sample(
        started_at=10.0,
        taken_at=20.0,
        weights=weights,
        routes=rendered(ROUTES["canary-and-native"], {}, folder=FOLDER).routes,
        hosts={
            A: (Host("10.0.0.1:8000", True), Host("10.0.0.2:8000", False)),
            B: (),
            C: (Host("10.0.0.3:8000", True),),
            "d" * 10: (),
        },
        statistics={
            f"cluster.{A}.upstream_rq_2xx": 7,
            f"cluster.{A}.upstream_rq_active": 2,
            f"cluster.{A}.upstream_rq_pending_active": 1,
            f"speculative.cut.revision.{A}": 3,
        },
    )


def test_the_state_counts_healthy_hosts_waiting_requests_and_cuts() -> None:
    stable = a_sample(**{A: 95, B: 5}).clusters()[0]
    assert (stable.hash, stable.weight, stable.endpoints) == (A, 95, 1)
    assert (stable.active, stable.responses["2xx"], stable.responses["5xx"]) == (3, 7, 0)
    assert stable.cut == 3


def test_a_fallback_shows_as_the_two_revisions_it_is_made_of() -> None:
    hosts = {name: (Host("10.0.0.1:8000", True),) for name in (A, B, C, f"{C}-fallback")}
    sample = Sample(
        started_at=10.0,
        taken_at=20.0,
        weights={f"{A}-way": 95, f"{B}-way": 5},
        routes=rendered(ROUTES["fallback"], {}, folder=FOLDER).routes,
        hosts={**hosts, f"{A}-way": (), f"{B}-way": ()},
        statistics={},
    )
    seen = [(each.hash, each.weight, each.endpoints) for each in sample.clusters()]
    assert seen == [(A, 95, 1), (B, 5, 1), (C, 0, 1)]


def test_without_runtime_weights_the_route_default_is_what_is_used() -> None:
    weights = {each.hash: each.weight for each in a_sample().clusters()}
    assert weights == {A: 100, B: 0, C: 0, "d" * 10: 0}


def test_a_runtime_weight_that_no_route_names_is_not_in_use() -> None:
    assert a_sample(**{"d" * 10: 50}).clusters()[3].weight == 0


def test_metrics_are_grouped_by_family() -> None:
    state = gateway.GatewayState(
        envoy_started_at=10.0,
        sampled_at=20.0,
        sequence=4,
        ready=True,
        clusters=a_sample(**{A: 95, B: 5}).clusters(),
    )
    lines = metrics(state).splitlines()
    assert f'speculative_gateway_weight{{revision="{A}"}} 95' in lines
    assert f'speculative_gateway_responses_total{{revision="{A}",class="2xx"}} 7' in lines
    assert "speculative_gateway_ready 1" in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))
