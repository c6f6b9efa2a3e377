"""The way to Pub/Sub, and what is said where there is none."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import PermissionDenied, Unauthenticated
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

from slipstream.bus import BusUnavailable, InvalidArgument, Unauthorized, open_bus
from slipstream.bus.drivers.pubsub import PubSubDriver, PubSubNative
from slipstream.bus.drivers.pubsub.connection import connect, probe
from slipstream.bus.settings import BusSettings
from tests.bus.conftest import OpenBus
from tests.bus.drivers.pubsub.test_examination import forget_credentials
from tests.bus.sites.pubsub import PubSubSite
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop


@in_loop
async def test_who_gets_no_answer_is_told_in_time() -> None:
    began = time.monotonic()
    with pytest.raises(BusUnavailable, match=r"does not answer at 127\.0\.0\.1"):
        await open_bus(driver="pubsub", pubsub_emulator_host=f"127.0.0.1:{free_port()}", connect_timeout_ms=400)
    assert time.monotonic() - began < 8, "it took the ten seconds that are usual, whatever it was told"


@in_loop
async def test_who_is_accepted_and_gets_no_answer_is_told_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        with pytest.raises(BusUnavailable):
            await open_bus(driver="pubsub", pubsub_emulator_host=f"127.0.0.1:{port}", connect_timeout_ms=400)
        assert time.monotonic() - began < 8, "it took the ten seconds that are usual, whatever it was told"


@in_loop
async def test_the_settings_have_the_last_word(pubsub: PubSubSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUBSUB_EMULATOR_HOST", raising=False)
    async with open_bus(**pubsub.settings()) as bus:
        await bus.publish("settings.alone", b"")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{free_port()}")
    async with open_bus(**pubsub.settings()) as bus:
        await bus.publish("settings.before.environment", b"")
        assert isinstance(bus.native, PubSubNative)
        assert isinstance(bus.native.publisher, PublisherClient)
        assert isinstance(bus.native.subscriber, SubscriberClient)
        assert bus.native.project == "tests"


@in_loop
async def test_an_emulator_needs_no_project(pubsub: PubSubSite, new_bus: OpenBus) -> None:
    async with new_bus(pubsub_project="") as bus:
        assert bus.native.project == "local"
        await bus.publish("somewhere.else", b"")


def test_without_credentials_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    forget_credentials(monkeypatch, str(tmp_path))
    with pytest.raises(Unauthorized, match="gcloud auth application-default login"):
        connect(BusSettings(driver="pubsub"))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    with pytest.raises(Unauthorized, match=r"GOOGLE_APPLICATION_CREDENTIALS=.*missing\.json"):
        connect(BusSettings(driver="pubsub"))


def test_without_a_project_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Credentials of a person name no project."""
    forget_credentials(monkeypatch, str(tmp_path))
    monkeypatch.delenv("GOOGLE_CLOUD_PROJECT", raising=False)
    monkeypatch.setattr("google.auth._cloud_sdk.get_project_id", lambda: None)
    person = {"type": "authorized_user", "client_id": "x", "client_secret": "x", "refresh_token": "x"}
    file = tmp_path / "person.json"
    file.write_text(json.dumps(person))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(InvalidArgument, match="set GOOGLE_CLOUD_PROJECT"):
        connect(BusSettings(driver="pubsub"))
    native = connect(BusSettings(driver="pubsub", pubsub_project="orders-prod"))
    try:
        assert native.project == "orders-prod"
        assert native.publisher.target.startswith("pubsub.")
    finally:
        native.close()


@in_loop
async def test_who_may_not_list_topics_may_publish(pubsub: PubSubSite, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionDenied("not for you")

    monkeypatch.setattr(PublisherClient, "list_topics", refuse)
    async with open_bus(**pubsub.settings()) as bus:
        await bus.publish("allowed.to.publish", b"")


def test_who_is_not_known_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Unauthenticated("who are you")

    native = connect(BusSettings(driver="pubsub", pubsub_emulator_host="127.0.0.1:1"))
    monkeypatch.setattr(native.publisher, "list_topics", refuse)
    try:
        with pytest.raises(Unauthorized, match="Check the credentials"):
            probe(native, 1)
    finally:
        native.close()


@in_loop
async def test_a_driver_that_was_not_opened_can_be_closed() -> None:
    await PubSubDriver(BusSettings(driver="pubsub")).close()
