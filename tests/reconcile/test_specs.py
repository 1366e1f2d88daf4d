"""A spec is read once, and again as soon as it is another one."""

import copy

import pytest
from tests.builders import a_raw_spec

from speculative_operator import specs
from speculative_operator.settings import Settings
from speculative_operator.specs import ReadSpec, Specs, Unreadable

KEY = ("llm", "chat")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    found: list[object] = []
    original = specs.read

    def read(raw: dict[str, object], *, name: str, settings: Settings) -> ReadSpec | Unreadable:
        found.append(raw)
        return original(raw, name=name, settings=settings)

    monkeypatch.setattr(specs, "read", read)
    return found


def test_an_equal_spec_is_read_once_though_status_made_a_new_object(reads: list[object]) -> None:
    known = Specs(Settings())
    first = known.read(KEY, a_raw_spec())
    assert known.read(KEY, copy.deepcopy(a_raw_spec())) is first
    assert len(reads) == 1


def test_an_edit_is_read_anew_also_after_what_could_not_be_read(reads: list[object]) -> None:
    known = Specs(Settings())
    assert isinstance(known.read(KEY, {}), Unreadable)
    found = known.read(KEY, a_raw_spec(replicas=3))
    assert isinstance(found, ReadSpec)
    assert found.spec.replicas == 3
    assert len(reads) == 2


def test_names_do_not_share_and_a_gone_one_is_forgotten(reads: list[object]) -> None:
    known = Specs(Settings())
    known.read(KEY, a_raw_spec())
    known.read(("llm", "other"), a_raw_spec())
    known.forget(KEY)
    known.read(KEY, a_raw_spec())
    assert len(reads) == 3
