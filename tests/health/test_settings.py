from __future__ import annotations

import pytest

from slipstream.health import HealthSettings, load_settings


def test_there_is_no_port_unless_somebody_says_so() -> None:
    assert load_settings({}, {}) == HealthSettings()
    assert load_settings({}, {}).port == 0


def test_options_win_over_the_environment() -> None:
    environment = {"HEALTH_PORT": "9001", "HEALTH_HOST": "0.0.0.0", "HEALTH_STALL_MS": "5000"}
    assert load_settings({"port": 9002}, environment) == HealthSettings(host="0.0.0.0", port=9002, stall_ms=5000)


def test_what_is_no_port_is_refused_with_its_name() -> None:
    with pytest.raises(ValueError, match="HEALTH_PORT='x': a number is wanted"):
        load_settings({}, {"HEALTH_PORT": "x"})
