"""Where settings come from, which source wins, and what is said about a bad one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.settings import PROFILES, SettingError, Settings, describe_settings, load_settings, unknown_variables

NAMES = [info.name for info in describe_settings()]


def write(directory: Path, text: str) -> Path:
    path = directory / "slipstream.toml"
    path.write_text(text)
    return path


def test_without_any_source_the_defaults_hold() -> None:
    assert load_settings({}, {}) == Settings()


def test_the_command_line_wins_over_the_environment_over_the_file_over_the_profile(tmp_path: Path) -> None:
    file = write(tmp_path, 'profile = "driftq-v1"\nmax_in_flight = 3\ntick_ms = 3\nport = 3\n')
    environment = {"SLIPSTREAM_TICK_MS": "4", "SLIPSTREAM_PORT": "4"}
    settings = load_settings({"port": 5}, environment, file)
    assert (settings.port, settings.tick_ms, settings.max_in_flight) == (5, 4, 3)
    assert settings.max_waiting_messages == 2, "from the profile"
    assert settings.journal_bytes == Settings().journal_bytes


@pytest.mark.parametrize("source", ["file", "environment", "command line"])
def test_a_profile_may_come_from_anywhere(tmp_path: Path, source: str) -> None:
    file = write(tmp_path, 'profile = "driftq-v1"' if source == "file" else "")
    environment = {"SLIPSTREAM_PROFILE": "driftq-v1"} if source == "environment" else {}
    given = {"profile": "driftq-v1"} if source == "command line" else {}
    settings = load_settings(given, environment, file)
    assert {name: getattr(settings, name) for name in PROFILES["driftq-v1"]} == PROFILES["driftq-v1"]


def test_the_profile_of_driftq_has_its_numbers() -> None:
    """Ruling 10."""
    settings = load_settings({"profile": "driftq-v1"}, {})
    numbers = (settings.max_in_flight, settings.lease_ms, settings.tick_ms)
    assert numbers == (2, 2_000, 250)
    assert (settings.max_waiting_messages, settings.max_waiting_bytes) == (2, 20)
    assert (settings.retry_backoff_ms, settings.idempotency_ttl_ms) == (0, 600_000)


@pytest.mark.parametrize("text", ["true", "1", "false", "0"])
def test_a_switch_in_the_environment(text: str) -> None:
    settings = load_settings({}, {"SLIPSTREAM_RETENTION_HOLD_UNFINISHED": text})
    assert settings.retention_hold_unfinished is (text in {"true", "1"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("port", "http"),
        ("port", "70000"),
        ("port", ""),
        ("max_in_flight", "-1"),
        ("durability", "sometimes"),
        ("profile", "fast"),
        ("log_level", "loud"),
        ("retention_hold_unfinished", "perhaps"),
    ],
)
def test_a_bad_value_is_named_with_its_source(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(SettingError) as from_environment:
        load_settings({}, {f"SLIPSTREAM_{name.upper()}": value})
    assert f"SLIPSTREAM_{name.upper()} in the environment" in str(from_environment.value)
    assert repr(value) in str(from_environment.value)
    file = write(tmp_path, f'{name} = "{value}"')
    with pytest.raises(SettingError, match=f"^{name} in {file}: "):
        load_settings({}, {}, file)
    with pytest.raises(SettingError, match=f"^--{name.replace('_', '-')} on the command line: "):
        load_settings({name: value}, {})


def test_an_unknown_key_in_the_file_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, "max_inflight = 3")
    with pytest.raises(SettingError, match=f"^max_inflight in {file}: there is no such setting"):
        load_settings({}, {}, file)


def test_a_table_in_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="server"):
        load_settings({}, {}, write(tmp_path, "[server]\nport = 3"))


@pytest.mark.parametrize("content", [b"port = ", b"port = 1\nport = 2", b"\xff\xfe"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    with pytest.raises(SettingError, match=r"bad\.toml"):
        load_settings({}, {}, path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path):
        with pytest.raises(SettingError, match=f"the settings file {path} cannot be read"):
            load_settings({}, {}, path)


def test_other_variables_of_the_environment_are_left_alone() -> None:
    assert load_settings({}, {"PORT": "1", "SLIPSTREAM_CONFIG": "x", "SLIPSTREAM_DATA_": "y"}) == Settings()


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_can_be_given_in_every_place(tmp_path: Path, name: str) -> None:
    info = next(info for info in describe_settings() if info.name == name)
    value: Any
    if info.choices:
        value = info.choices[-1]
    elif info.kind is bool:
        value = not info.default
    else:
        value = "elsewhere" if info.kind is str else 5000
    written = f'"{value}"' if isinstance(value, str) else str(value).lower()
    expected = load_settings({name: value}, {})
    assert getattr(expected, name) == value
    assert load_settings({}, {info.environment: str(value).lower()}) == expected
    assert load_settings({}, {}, write(tmp_path, f"{name} = {written}")) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_says_what_it_is(name: str) -> None:
    info = next(info for info in describe_settings() if info.name == name)
    assert info.section
    assert info.text[0].isupper() or info.text[0] == "…"
    assert info.text.endswith((".", "…"))


def test_a_misspelt_variable_is_named_with_the_closest_setting() -> None:
    environment = {
        "SLIPSTREAM_MAX_INFLIGHT": "3",
        "SLIPSTREAM_QQQ": "",
        "SLIPSTREAM_CONFIG": "x",
        "SLIPSTREAM_PORT": "1",
    }
    near, far = unknown_variables(environment)
    assert near.startswith("SLIPSTREAM_MAX_INFLIGHT in the environment is no setting and is ignored")
    assert near.endswith("; did you mean SLIPSTREAM_MAX_IN_FLIGHT?")
    assert far == "SLIPSTREAM_QQQ in the environment is no setting and is ignored"
