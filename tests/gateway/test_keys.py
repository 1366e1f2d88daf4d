"""Pure: which entries of a Secret are keys, and what is said about the others."""

import pytest

from speculative_gateway.keys import usable


def test_a_final_newline_is_not_part_of_a_key() -> None:
    assert usable({"alice": b"0123456789\n"}).by_client == {"alice": "0123456789"}


@pytest.mark.parametrize(
    "content",
    [b"", b"short", b"with a space", b"tab\tinside", "sch\u00f6ner-key".encode(), b"x" * 1025],
    ids=["empty", "short", "space", "tab", "not ASCII", "long"],
)
def test_an_unusable_key_is_named_and_never_shown(content: bytes) -> None:
    found = usable({"bad": content, "good": b"0123456789"})
    assert found.by_client == {"good": "0123456789"}
    assert found.problem == "API key bad is not 8 to 1024 visible ASCII characters"


def test_of_two_clients_with_one_key_the_first_has_it() -> None:
    found = usable({"b": b"0123456789", "a": b"0123456789"})
    assert found.by_client == {"a": "0123456789"}
    assert found.problem == "API key b equals a"


def test_keys_do_not_show_in_a_representation() -> None:
    assert "0123456789" not in repr(usable({"alice": b"0123456789"}))
