"""Pure: samples become states, states become metrics."""

from dataclasses import replace

from tests.gateway.test_configuration import FOLDER, ROUTES

from speculative_api import gateway
from speculative_gateway.admin import Host
from speculative_gateway.render import rendered
from speculative_gateway.state import Sample, metrics, never_falling, passed_on

A, B, C = "a" * 10, "b" * 10, "c" * 10


def answered(revision: str, status: int, *, by: str = A, flags: str = "-", kind: str = "") -> str:
    """The counter of such answers."""
    whose = f"speculative.answers.revision.{revision}.by.{by}"
    return f"{whose}.status.{status}.kind.{kind}.flags.{flags}"


def a_sample(**weights: int) -> Sample:
    """Stable with two hosts, one of them failing, and a canary; `weights` are the runtime's."""
    return Sample(
        started_at=10.0,
        taken_at=20.0,
        runtime={f"rev.{name}": str(weight) for name, weight in weights.items()},
        routes=rendered(ROUTES["canary-and-native"], {}, folder=FOLDER).routes,
        hosts={
            A: (Host("10.0.0.1:8000", True), Host("10.0.0.2:8000", False)),
            B: (),
            C: (Host("10.0.0.3:8000", True),),
            "d" * 10: (),
        },
        statistics={
            answered(A, 200): 4,
            answered(A, 200, flags="DC"): 1,
            answered(A, 200, flags="UC"): 1,
            answered(A, 200, flags="UT,SI"): 1,
            answered(A, 0, flags="DC"): 5,
            answered(A, 503, flags="UC"): 2,
            answered(A, 503, by="-", flags="UH"): 1,
            answered(A, 503, flags="UO"): 6,
            answered(A, 503, by="-", flags="UO"): 1,
            answered(A, 401, by="-", flags="UAEX"): 8,
            answered(A, 429, by="-", flags="RL"): 9,
            answered(A, 429): 3,
            answered(A, 200, by=C): 1,
            f"cluster.{A}.upstream_rq_active": 2,
            f"cluster.{A}.upstream_rq_pending_active": 1,
        },
    )


def test_the_state_counts_healthy_hosts_and_waiting_requests() -> None:
    stable = a_sample(**{A: 95, B: 5}).clusters()[0]
    assert (stable.hash, stable.weight, stable.endpoints) == (A, 95, 1)
    assert stable.active == 3


def test_a_kind_of_requests_is_counted_apart_and_with_all_others() -> None:
    found = a_sample(**{A: 95, B: 5})
    of_a_kind = {
        answered(A, 200, kind="structured"): 4,
        answered(A, 500, kind="structured"): 3,
        answered(A, 200, kind="structured", flags="UC"): 2,
        answered(A, 429, kind="structured", by="-", flags="RL"): 7,
        answered(A, 200, kind="tools"): 5,
        answered(A, 200, kind="unheard-of"): 6,
    }
    more = replace(found, statistics={**found.statistics, **of_a_kind})
    stable = more.clusters()[0]
    assert stable.kinds["structured"].responses == {"2xx": 6, "3xx": 0, "4xx": 0, "5xx": 3}
    assert (stable.kinds["structured"].cut, stable.kinds["tools"].responses["2xx"]) == (2, 5)
    assert set(stable.kinds) == set(gateway.REQUEST_KINDS)
    assert stable.responses["2xx"] == 8 + 6 + 5 + 6
    assert stable.responses["5xx"] == 3 + 3


def test_answers_are_the_revision_s_unless_the_gateway_refused_by_itself() -> None:
    stable = a_sample(**{A: 95, B: 5}).clusters()[0]
    assert stable.responses == {"2xx": 8, "3xx": 0, "4xx": 3, "5xx": 3}
    assert (stable.cut, stable.shed) == (2, 7)


def test_a_fallback_shows_as_the_two_revisions_it_is_made_of() -> None:
    hosts = {name: (Host("10.0.0.1:8000", True),) for name in (A, B, C, f"{C}-fallback")}
    sample = Sample(
        started_at=10.0,
        taken_at=20.0,
        runtime={f"rev.{A}-way": "95", f"rev.{B}-way": "5"},
        routes=rendered(ROUTES["fallback"], {}, folder=FOLDER).routes,
        hosts={**hosts, f"{A}-way": (), f"{B}-way": ()},
        statistics={},
    )
    seen = [(each.hash, each.weight, each.endpoints) for each in sample.clusters()]
    assert seen == [(A, 95, 1), (B, 5, 1), (C, 0, 1)]


def a_shadow(percent: str = "10", **counts: int) -> gateway.ShadowState:
    """The canary's copies as a sample says them; `counts` are its cluster's."""
    hosts = (Host("10.0.0.1:8000", True),)
    sample = Sample(
        started_at=10.0,
        taken_at=20.0,
        runtime={f"rev.{A}": "100", f"rev.{B}": "0", f"shadow.{B}-shadow": percent},
        routes=rendered(ROUTES["shadow"], {}, folder=FOLDER).routes,
        hosts={A: hosts, B: hosts, f"{B}-shadow": hosts},
        statistics={f"cluster.{B}-shadow.upstream_{name}": n for name, n in counts.items()},
    )
    stable, canary = sample.clusters()
    assert stable.shadow is None
    assert (canary.hash, canary.weight, sum(canary.responses.values())) == (B, 0, 0)
    assert canary.shadow is not None
    return canary.shadow


def test_copies_are_counted_apart_and_those_not_made_are_no_error() -> None:
    found = a_shadow(
        rq_2xx=11,
        rq_4xx=1,
        rq_5xx=9,
        rq_active_overflow=6,
        rq_active=2,
        rq_pending_active=1,
        # Three before their answers, which are 503, and two in the middle of theirs.
        cx_destroy_remote_with_active_rq=5,
    )
    assert found == gateway.ShadowState(
        percent=10,
        active=3,
        responses={"2xx": 11, "3xx": 0, "4xx": 1, "5xx": 3},
        skipped=6,
        cut=2,
    )


def test_a_count_of_copies_never_falls_in_one_life_of_envoy() -> None:
    def a_state(started_at: float, **counts: int) -> gateway.GatewayState:
        canary = gateway.ClusterState(
            hash=B, weight=0, endpoints=1, active=0, shadow=a_shadow(**counts)
        )
        return gateway.GatewayState(envoy_started_at=started_at, sampled_at=1, clusters=(canary,))

    before = a_state(1.0, rq_2xx=7, rq_5xx=5, cx_destroy_remote_with_active_rq=6)
    # An overflow that was counted and whose 503 was not yet.
    after = a_state(
        1.0, rq_2xx=8, rq_5xx=5, rq_active_overflow=1, cx_destroy_remote_with_active_rq=5
    )
    shadow = never_falling(after, before).clusters[0].shadow
    assert shadow is not None
    assert (shadow.responses["2xx"], shadow.responses["5xx"], shadow.cut) == (8, 5, 1)
    assert never_falling(after, None) == after
    another_life = after.model_copy(update={"envoy_started_at": 2.0})
    assert never_falling(another_life, before) == another_life


def test_copies_show_in_the_metrics() -> None:
    canary = gateway.ClusterState(
        hash=B, weight=0, endpoints=1, active=0, shadow=a_shadow(rq_2xx=3, rq_active_overflow=2)
    )
    state = gateway.GatewayState(envoy_started_at=1, sampled_at=1, clusters=(canary,))
    text = metrics({"": state})
    who = f'revision="{B}",lane="accelerated"'
    assert f"speculative_gateway_shadow_percent{{{who}}} 10\n" in text
    assert f"speculative_gateway_shadow_skipped_total{{{who}}} 2\n" in text
    assert f'speculative_gateway_shadow_responses_total{{{who},class="2xx"}} 3\n' in text


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
    lines = metrics({"": state}).splitlines()
    of_a = f'revision="{A}",lane="accelerated"'
    assert f"speculative_gateway_weight{{{of_a}}} 95" in lines
    assert f'speculative_gateway_responses_total{{{of_a},class="2xx"}} 8' in lines
    assert f'speculative_gateway_weight{{revision="{C}",lane="native"}} 0' in lines
    assert "speculative_gateway_ready 1" in lines
    families = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(families) == len(set(families))


def test_figures_of_revisions_that_are_gone_are_left_out() -> None:
    text = (
        "# TYPE envoy_speculative_prompt_tokens counter\n"
        f'envoy_speculative_prompt_tokens{{revision="{A}",lane="native"}} 7\n'
        f'envoy_speculative_prompt_tokens{{revision="{B}",lane="native"}} 8\n'
        "envoy_server_uptime{} 9\n"
    )
    cluster = gateway.ClusterState(hash=A, weight=0, endpoints=0, active=0)
    state = gateway.GatewayState(envoy_started_at=1, sampled_at=1, clusters=(cluster,))
    assert passed_on(text, {"": state}, {}) == (
        "# TYPE speculative_gateway_prompt_tokens counter\n"
        f'speculative_gateway_prompt_tokens{{revision="{A}",lane="native"}} 7\n'
    )
