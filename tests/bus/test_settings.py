"""Settings of the bus: the names of the environment, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slipstream.bus import BusSettings, InvalidArgument, load_settings, open_bus


def test_every_setting_comes_from_the_environment() -> None:
    settings = load_settings(
        {},
        {
            "MESSAGE_BUS_DRIVER": "nats",
            "BUS_PREFIX": "dev.",
            "NATS_URL": "nats://nats:4222",
            "NATS_CREDS_PATH": "/run/secrets/user.creds",
            "NATS_JETSTREAM": "false",
            "PUBSUB_EMULATOR_HOST": "127.0.0.1:8085",
            "BUS_ENSURE": "0",
        },
    )
    assert settings.driver == "nats"
    assert settings.prefix == "dev."
    assert settings.nats_url == "nats://nats:4222"
    assert settings.nats_creds_path == "/run/secrets/user.creds"
    assert settings.nats_jetstream is False
    assert settings.pubsub_emulator_host == "127.0.0.1:8085"
    assert settings.ensure is False
    assert load_settings({}, {"NATS_NKEY_SEED": "SUAM"}).nats_nkey_seed == "SUAM"


def test_without_any_it_is_the_embedded_broker(tmp_path: Path) -> None:
    settings = load_settings({}, {"SLIPSTREAM_DATA": str(tmp_path)})
    assert settings.driver == "embedded"
    assert settings.prefix == ""
    assert settings.nats_jetstream is True


def test_a_variable_that_is_empty_says_nothing() -> None:
    assert load_settings({}, {"MESSAGE_BUS_DRIVER": "", "NATS_JETSTREAM": " "}) == load_settings({}, {})


def test_what_is_given_wins_over_the_environment() -> None:
    assert load_settings({"prefix": "stage."}, {"BUS_PREFIX": "dev."}).prefix == "stage."


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (
            {"MESSAGE_BUS_DRIVER": "kafka"},
            "MESSAGE_BUS_DRIVER='kafka': there is auto, embedded, memory, http",
        ),
        ({"NATS_JETSTREAM": "perhaps"}, "NATS_JETSTREAM='perhaps': true or false is wanted"),
        ({"BUS_PREFIX": "two words."}, "BUS_PREFIX"),
        ({"BUS_PUBLISH_TIMEOUT_MS": "soon"}, "BUS_PUBLISH_TIMEOUT_MS='soon': a number is wanted"),
        ({"PUBSUB_BATCH_MESSAGES": "100000"}, "PUBSUB_BATCH_MESSAGES"),
    ],
)
def test_what_is_wrong_is_told_by_its_name(environment: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidArgument) as told:
        load_settings({}, environment)
    assert words in str(told.value)


@pytest.mark.parametrize("given", [{"drivr": "nats"}, {"driver": "kafka"}])
def test_a_name_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="there"):
        open_bus(**given)


@pytest.mark.parametrize("wrong", [{"max_buffered_messages": 0}, {"prefix": "two words."}])
def test_settings_that_were_made_by_hand_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        open_bus(BusSettings(driver="memory", **wrong))
