from __future__ import annotations

import pytest

from slipstream.excerpt import excerpt


def test_a_text_that_fits_is_left_as_it_is() -> None:
    assert excerpt("0123456789", 10) == "0123456789"


def test_the_beginning_and_most_of_the_end_are_kept() -> None:
    text = "b" * 1_000 + "m" * 1_000 + "e" * 1_000
    cut = excerpt(text, 100)
    assert len(cut) == 100
    assert cut == "b" * 25 + "\n[…]\n" + "e" * 70


@pytest.mark.parametrize("chars_max", range(9))
def test_no_limit_is_too_small(chars_max: int) -> None:
    assert len(excerpt("0123456789", chars_max)) == chars_max
