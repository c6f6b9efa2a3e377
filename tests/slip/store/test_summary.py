"""Where a slip is, whatever the order of what is heard."""

from __future__ import annotations

import functools
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from slipstream.slip.store.store import Tracked
from slipstream.slip.store.summary import Summary, decode_summary, encode_summary, summary_of

States = st.sampled_from(["begun", "sent", "done", "rerun"])


def heard(at_ms: int, state: str) -> Summary:
    return summary_of(at_ms=at_ms, kind="chat.v1", step="a", state=state, ended=state == "done", ttl_ms=100)


def told(summaries: list[Summary]) -> Summary:
    return functools.reduce(Summary.and_then, summaries)


def retold(story: dict[int, str]) -> tuple[int, str, bool]:
    """The rule, told in the order of time."""
    where = (-1, "", False)
    for at_ms, state in sorted(story.items()):
        if not where[2] or state in {"done", "rerun"}:
            where = (at_ms, state, state == "done")
    return where


@given(story=st.dictionaries(st.integers(0, 50), States, min_size=1, max_size=8), random=st.randoms())
def test_every_order_tells_what_the_order_of_time_tells(story: dict[int, str], random: Random) -> None:
    summaries = [heard(at_ms, state) for at_ms, state in story.items()]
    random.shuffle(summaries)
    summary = told(summaries)
    moved_ms, state, ended = retold(story)
    assert summary.tracked("c") == Tracked("c", "chat.v1", "a", state, min(story), moved_ms, ended)
    assert summary.expires_ms == max(story) + 100
    assert decode_summary(encode_summary(summary)) == summary


@given(story=st.lists(st.tuples(st.integers(0, 50), States), min_size=1, max_size=5))
def test_what_is_heard_twice_is_heard_once(story: list[tuple[int, str]]) -> None:
    summaries = [heard(at_ms, state) for at_ms, state in dict(story).items()]
    assert told([*summaries, *summaries]) == told(summaries)


def test_a_rerun_of_the_same_millisecond_as_the_end_does_not_undo_it() -> None:
    end, rerun = heard(20, "done"), heard(20, "rerun")
    assert told([end, rerun]).ended
    assert told([rerun, end]).ended
    assert not told([end, heard(21, "rerun")]).ended
