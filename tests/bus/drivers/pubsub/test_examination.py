"""What the doctor says about Pub/Sub."""

from __future__ import annotations

import time

import pytest

from slipstream.bus import Finding, examine, load_settings
from tests.bus.conftest import OpenBus
from tests.bus.drivers.pubsub.engine import Engine
from tests.bus.recorder import Recorder
from tests.bus.sites.pubsub import PubSubSite
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop


async def findings(**given: object) -> dict[str, Finding]:
    return {finding.what: finding async for finding in examine(load_settings({"driver": "pubsub", **given}, {}))}


@in_loop
async def test_what_is_there_and_what_would_be_lost(pubsub: PubSubSite, new_bus: OpenBus, topic: str) -> None:
    prefix = f"{topic}."
    async with new_bus(prefix=prefix) as bus:
        engine = Engine(bus)
        await bus.subscribe("orders", "shipping", Recorder())
        await bus.ensure_topic("unheard")
        await bus.ensure_topic("deleted")
        await engine.create_subscription(f"{prefix}deleted", f"{prefix}deleted.shipping")
        await engine.delete_topic(f"{prefix}deleted")
    found = await findings(**{**pubsub.settings(), "prefix": prefix})
    assert {what: finding.verdict for what, finding in found.items()} == {
        "libraries": "ok",
        "credentials": "ok",
        "project": "ok",
        "connection": "ok",
        "topics": "ok",
        f"topic {prefix}orders": "ok",
        f"topic {prefix}orders.DLQ": "ok",
        f"topic {prefix}unheard": "warning",
        f"subscription {prefix}deleted.shipping": "warning",
    }
    assert found["project"].text == "tests"
    assert found["credentials"].text.endswith(f"PUBSUB_EMULATOR_HOST={pubsub.address}")
    assert f"{prefix}orders.shipping" in found[f"topic {prefix}orders"].text
    assert "what is published there is lost" in found[f"topic {prefix}unheard"].text


@in_loop
async def test_nobody_there() -> None:
    began = time.monotonic()
    found = await findings(pubsub_emulator_host=f"127.0.0.1:{free_port()}", connect_timeout_ms=500)
    assert time.monotonic() - began < 10
    assert found["connection"].verdict == "problem"
    assert "correct PUBSUB_EMULATOR_HOST" in found["connection"].text
    assert "topics" not in found


@in_loop
async def test_no_credentials(no_credentials: None) -> None:
    found = await findings()
    assert found["credentials"].verdict == "problem"
    assert "gcloud auth application-default login" in found["credentials"].text


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    forget_credentials(monkeypatch, str(tmp_path_factory.mktemp("nothing")))


def forget_credentials(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    """And look for none on the network."""
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", home)
    monkeypatch.setenv("NO_GCE_CHECK", "true")
