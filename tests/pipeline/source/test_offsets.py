"""Where a stream has come to."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from slipstream.pipeline.source.offsets import Offsets, TopicOffsets, from_dict, ranges_between
from slipstream.pipeline.source.range import Range

names = st.text("ab.", min_size=1, max_size=3)
topics = st.dictionaries(
    names,
    st.builds(TopicOffsets, names, st.dictionaries(st.integers(0, 12), st.integers(0, 2**62), min_size=1)),
)


@given(st.builds(Offsets, topics, st.booleans(), st.none() | topics))
def test_what_spark_keeps_is_what_was_said(offsets: Offsets) -> None:
    kept = json.dumps(offsets.to_dict())
    assert from_dict(json.loads(kept)) == offsets
    assert json.dumps(from_dict(json.loads(kept)).to_dict()) == kept


@given(topics, st.randoms())
def test_equal_offsets_read_the_same(found: dict[str, TopicOffsets], random: object) -> None:
    """Spark compares the text, and would never come to rest."""
    backwards = {
        name: TopicOffsets(found[name].incarnation, dict(reversed(found[name].partitions.items())))
        for name in reversed(found)
    }
    assert json.dumps(Offsets(found).to_dict()) == json.dumps(Offsets(backwards).to_dict())


def at(incarnation: str, **partitions: int) -> TopicOffsets:
    return TopicOffsets(incarnation, {int(name.removeprefix("p")): offset for name, offset in partitions.items()})


def test_what_lies_between() -> None:
    start = Offsets({"a": at("1", p0=5, p1=5), "b": at("2", p0=9)})
    end = Offsets({"a": at("1", p0=7, p1=5), "b": at("2", p0=9)})
    assert ranges_between(start, end) == [Range("a", "1", 0, 5, 7)]


def test_a_partition_that_came_later_begins_where_the_others_were() -> None:
    """It was added after they had come there, so nothing of it is below; and ten million offsets are not gone through
    to find that out."""
    start = Offsets({"a": at("1", p0=5, p1=6)})
    assert Range("a", "1", 2, 5, 9) in ranges_between(start, Offsets({"a": at("1", p0=9, p1=9, p2=9)}))


def test_a_topic_that_is_new_or_another_begins_at_its_beginning() -> None:
    start = Offsets({"a": at("1", p0=5)})
    end = Offsets({"a": at("7", p0=3), "b": at("2", p0=4)})
    assert ranges_between(start, end) == [Range("a", "7", 0, 0, 3), Range("b", "2", 0, 0, 4)]


def test_the_first_batch_knows_where_it_began() -> None:
    end = Offsets({"a": at("1", p0=9)}, begun={"a": at("1", p0=5)})
    later = Offsets({"a": at("1", p0=8)}, initial=True)
    assert ranges_between(later, end) == [Range("a", "1", 0, 5, 9)]
