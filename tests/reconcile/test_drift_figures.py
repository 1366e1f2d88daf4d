"""What Prometheus sees of drift, and when it is forgotten."""

from speculative_operator.telemetry import Telemetry

ONE, OTHER = ("llm", "chat"), ("llm", "code")
PREFIX = "speculative_operator_acceptance_"


def shown(telemetry: Telemetry) -> list[str]:
    lines = telemetry.exposition().decode().splitlines()
    return sorted(line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX))


def test_each_resource_has_its_own_and_a_missing_figure_keeps_the_last() -> None:
    telemetry = Telemetry()
    telemetry.drift(ONE, is_drifted=False, percent=97.0)
    telemetry.drift(ONE, is_drifted=True, percent=None)
    telemetry.drift(OTHER, is_drifted=False, percent=None)
    assert shown(telemetry) == [
        'drifted{name="chat",namespace="llm"} 1.0',
        'drifted{name="code",namespace="llm"} 0.0',
        'percent_of_baseline{name="chat",namespace="llm"} 97.0',
    ]


def test_what_is_gone_is_not_shown() -> None:
    telemetry = Telemetry()
    telemetry.drift(ONE, is_drifted=True, percent=50.0)
    telemetry.drift(OTHER, is_drifted=True, percent=50.0)
    telemetry.forget_drift(ONE)
    telemetry.forget_drift(ONE)
    assert len(shown(telemetry)) == 2
    telemetry.forget_drift()
    assert shown(telemetry) == []
