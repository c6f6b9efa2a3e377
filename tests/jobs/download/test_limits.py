"""Limits of hosts by name and pattern."""

from __future__ import annotations

import pytest

from slipstream.jobs.download import limits
from slipstream.jobs.download.limits import HostLimit, HostLimits, Share

LIMITS = HostLimits(
    {
        "*.shop.test": HostLimit(concurrency=8),
        "cdn.shop.test": HostLimit(rate_per_s=2.5),
        "*.cdn.shop.test": HostLimit(concurrency=0),
        "Upper.test": HostLimit(concurrency=1),
    },
    Share(4, 1.0),
)


@pytest.mark.parametrize(
    ("name", "share"),
    [
        ("img.shop.test", Share(8, 1.0)),
        ("cdn.shop.test", Share(4, 2.5)),
        ("a.cdn.shop.test", Share(0, 1.0)),
        ("upper.test", Share(1, 1.0)),
        ("shop.test", Share(4, 1.0)),
    ],
)
def test_the_name_comes_first_and_then_the_longest_pattern(name: str, share: Share) -> None:
    for _ in range(2):
        assert LIMITS.of(name) == share


def test_names_are_not_remembered_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LIMITS_CACHED", 2)
    found = HostLimits({"a*": HostLimit(concurrency=1)}, Share(4))
    assert [found.of(name).concurrency for name in ("a1", "b", "a2", "a1")] == [1, 4, 1, 1]
