"""Names that are legal everywhere, and what is derived from them."""

from __future__ import annotations

import pytest

from slipstream.bus import InvalidArgument
from slipstream.bus.names import check_name, check_prefix, dead_letter_topic, literal_start


@pytest.mark.parametrize("name", ["a", "internal.ingress.v1", "user:1", "A-b_c.9", "x" * 200])
def test_these_are_names(name: str) -> None:
    check_name("topic", name)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "a b", "a*", ">", "a/b", "ä", "a\n", "x" * 201])
def test_these_are_not(name: str) -> None:
    with pytest.raises(InvalidArgument):
        check_name("topic", name)


def test_a_prefix_may_end_with_a_dot() -> None:
    for prefix in ("", "dev.", "dev", "a.b."):
        check_prefix(prefix)
    for prefix in (".", "dev..", "two words."):
        with pytest.raises(InvalidArgument):
            check_prefix(prefix)


def test_dead_letters_have_a_topic_of_their_own_and_no_second_one() -> None:
    assert dead_letter_topic("orders", None) == "orders.DLQ"
    assert dead_letter_topic("orders", "graveyard") == "graveyard"
    assert dead_letter_topic("orders.DLQ", None) == ""
    with pytest.raises(InvalidArgument, match="itself"):
        dead_letter_topic("graveyard", "graveyard")


def test_the_start_of_a_pattern_is_what_all_matches_have() -> None:
    assert literal_start("internal.*") == "internal."
    assert literal_start("internal.b?t.*") == "internal.b"
    assert literal_start("*") == ""
    assert literal_start("orders") == "orders"
