"""A set of indexes kept as ranges, against a plain set."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from slipstream.broker.indexes import IndexSet

STEPS = st.lists(st.tuples(st.sampled_from(["add", "add", "add", "drop", "cut"]), st.integers(0, 20)))


@given(STEPS)
def test_it_holds_what_a_plain_set_holds(steps: list[tuple[str, int]]) -> None:
    ranges, plain = IndexSet(), set[int]()
    for what, index in steps:
        if what == "add":
            ranges.add(index)
            plain.add(index)
        elif what == "drop":
            ranges.drop_below(index)
            plain = {each for each in plain if each >= index}
        else:
            ranges.cut_out(index, index + 3)
            plain = {each if each < index else each - 3 for each in plain if not index <= each < index + 3}
        assert {each for each in range(-1, 25) if each in ranges} == plain
        assert (ranges.size, bool(ranges)) == (len(plain), bool(plain))
        found = ranges.ranges()
        assert all(start < end for start, end in found), "no range is empty"
        assert all(a[1] < b[0] for a, b in pairwise(found)), "what touches is one range"


@given(STEPS)
def test_it_comes_back_from_its_ranges(steps: list[tuple[str, int]]) -> None:
    first = IndexSet()
    for what, index in steps:
        getattr(first, "drop_below" if what == "drop" else "add")(index)
    second = IndexSet(first.ranges())
    assert (second.ranges(), second.size) == (first.ranges(), first.size)
