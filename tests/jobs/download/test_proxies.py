"""Pools of proxies: their order, and configurations that make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.failure import Code, TaskFailed

A, B, C, D = (f"http://{name}:3128" for name in "abcd")


def test_fallbacks_come_depth_first_and_each_proxy_once() -> None:
    pools = Pools(
        {
            "one": {"urls": [A], "fallbacks": ["two", "four"]},
            "two": {"urls": [B], "fallbacks": ["three"]},
            "three": {"urls": [C, A], "fallbacks": ["direct"]},
            "four": {"urls": [B, D]},
        }
    )
    assert pools.candidates("one") == [A, B, C, None, D]
    assert pools.candidates("four", ["direct", "one"], "x")[-3:] == [None, A, C]
    assert pools.candidates("", ["three"]) == [C, A, None]


def test_a_task_that_names_none_goes_direct() -> None:
    assert Pools().candidates("") == [None]
    assert Pools().candidates("direct") == [None]


def test_resources_begin_at_different_proxies_and_the_same_one_at_the_same() -> None:
    pools = Pools({"one": {"urls": [A, B, C]}})
    firsts = [pools.candidates("one", (), f"resource-{number}")[0] for number in range(60)]
    assert set(firsts) == {A, B, C}
    assert firsts == [pools.candidates("one", (), f"resource-{number}")[0] for number in range(60)]


def test_attempts_go_round() -> None:
    assert [Pools.pick([A, B, None], attempt) for attempt in (1, 2, 3, 4)] == [A, B, None, A]


def test_a_pool_nobody_knows_fails_the_task_for_good() -> None:
    for arguments in (("nowhere",), ("one", ["nowhere"])):
        with pytest.raises(TaskFailed, match=r"nowhere.*direct, one") as caught:
            Pools({"one": {"urls": [A]}}).candidates(*arguments)
        assert caught.value.code is Code.HANDLER_UNKNOWN_PROXY_POOL
        assert not caught.value.is_retryable


def test_a_circle_is_refused_with_its_path() -> None:
    tables = {
        "start": {"urls": [A], "fallbacks": ["one"]},
        "one": {"urls": [A], "fallbacks": ["direct", "two"]},
        "two": {"fallbacks": ["three"]},
        "three": {"fallbacks": ["one"]},
    }
    with pytest.raises(InvalidJobs, match="one -> two -> three -> one"):
        Pools(tables)
    with pytest.raises(InvalidJobs, match="self -> self"):
        Pools({"self": {"fallbacks": ["self"]}})


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"one": {"urls": [A], "fallbacks": ["nowhere"]}}, "nowhere"),
        ({"one": {}}, "neither"),
        ({"direct": {"urls": [A]}}, "direct"),
        ({"one": {"urls": ["socks5://user:secret@h:1"]}}, "URL 1"),
        ({"one": {"urls": [A, "nonsense"]}}, "URL 2"),
        ({"one": {"url": A}}, "url"),
        ({"one": [A]}, "one"),
        ({"one": {"urls": A}}, "one"),
    ],
)
def test_a_configuration_that_cannot_be_right_is_refused(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJobs, match=message) as caught:
        Pools(tables)
    assert "secret" not in str(caught.value)


def test_many_ways_to_a_pool_are_no_circle_and_are_walked_in_no_time() -> None:
    tables = {f"p{n}": {"urls": [A], "fallbacks": [f"p{n + 1}", f"p{n + 1}"]} for n in range(40)}
    assert Pools({**tables, "p40": {"urls": [B]}}).candidates("p0") == [A, B]
