"""The settings of the supervisor."""

from __future__ import annotations

import pytest

from slipstream.up.settings import InvalidUp, describe_settings, load_settings


def test_the_environment_says_them() -> None:
    assert load_settings({}, {"UP_STOP_TIMEOUT_MS": "5"}).stop_timeout_ms == 5
    assert load_settings({}, {}).restart_longest_ms == 30_000


def test_what_makes_no_sense_is_refused_by_its_name() -> None:
    with pytest.raises(InvalidUp, match="UP_LOG_BYTES='many': a number is wanted"):
        load_settings({}, {"UP_LOG_BYTES": "many"})


def test_all_are_named_alike() -> None:
    assert all(info.variable == f"UP_{info.name.upper()}" for info in describe_settings())
