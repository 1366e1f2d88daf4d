"""A trial of copies: the candidate's answers are those to copies, and nobody else's are."""

import pytest
from tests.analysis.looks import CANDIDATE, CONTROL, Proxy, Trial

from speculative_operator.analysis import assess


def shadowing() -> tuple[Trial, Proxy]:
    proxy = Proxy(copies=[0, 0, 0, 0])
    trial = Trial(proxies=[proxy])
    trial.shadow = True
    trial.look()
    return trial, proxy


def verdict(trial: Trial, name: str = "ErrorRate"):
    return next(m for m in assess(trial.evidence).metrics if m.name == name)


def add(proxy: Proxy, *counts: int) -> None:
    assert proxy.copies is not None
    proxy.copies = [a + b for a, b in zip(proxy.copies, counts, strict=True)]


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [((20, 0, 0, 0), "Passed"), ((0, 0, 20, 0), "Failed"), ((20, 0, 0, 20), "Failed")],
    ids=["good", "5xx", "cut"],
)
def test_errors_are_those_of_copies(counts: tuple[int, ...], outcome: str) -> None:
    trial, proxy = shadowing()
    for _ in range(120):
        add(proxy, *counts)
        proxy.answer(CONTROL, good=200)
        trial.look()
    assert verdict(trial).outcome == outcome
    assert assess(trial.evidence).candidate_requests == 120 * sum(counts[:3])


def test_errors_of_its_users_before_are_not_those_of_copies() -> None:
    trial, proxy = shadowing()
    for _ in range(40):
        add(proxy, 20, 0, 0, 0)
        proxy.answer(CANDIDATE, bad=50)
        proxy.answer(CONTROL, good=200)
        trial.look()
    assert verdict(trial).outcome != "Failed"
    assert assess(trial.evidence).candidate_requests == 800


def test_ten_copies_that_all_fail_are_a_catastrophe() -> None:
    trial, proxy = shadowing()
    add(proxy, 0, 0, 10, 0)
    proxy.answer(CONTROL, good=200)
    trial.look()
    assert "all of its last 10 requests failed" in assess(trial.evidence).all_fail


def test_copies_that_were_not_made_are_nothing_and_neither_is_a_gateway_without_any() -> None:
    trial, proxy = shadowing()
    proxy.copies = None
    for _ in range(20):
        proxy.answer(CONTROL, good=200)
        trial.look()
    found = verdict(trial)
    assert (found.outcome, found.measured) == ("Inconclusive", False)
    assert assess(trial.evidence).candidate_requests == 0
