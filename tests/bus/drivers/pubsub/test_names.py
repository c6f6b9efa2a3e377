"""Names that Pub/Sub does not take are refused before it is asked, and with what it does take."""

from __future__ import annotations

import pytest

from slipstream.bus import InvalidArgument
from slipstream.bus.drivers.pubsub.names import check_subscription, check_topic, subscription_name
from tests.bus.conftest import OpenBus
from tests.bus.recorder import Recorder
from tests.client.loop import in_loop


@pytest.mark.parametrize(
    "name", ["ab", "goog-orders", "google", "1st", "_orders", "user:1", "x" * 256, "two words", ""]
)
def test_a_topic_pubsub_would_refuse(name: str) -> None:
    with pytest.raises(InvalidArgument, match="must start with a letter, and not with goog"):
        check_topic(name)


@pytest.mark.parametrize("name", ["abc", "internal.orders.v1", "Good", "x" * 255, "a-_.~+%"])
def test_a_topic_pubsub_takes(name: str) -> None:
    check_topic(name)


def test_a_subscription_is_named_for_topic_and_group() -> None:
    assert subscription_name("dev.orders", "billing.v1") == "dev.orders.billing.v1"
    check_subscription("orders", "billing.v1")
    with pytest.raises(InvalidArgument, match=r"no subscription with the name 'orders\.team:a'"):
        check_subscription("orders", "team:a")
    with pytest.raises(InvalidArgument, match="3 to 255 characters"):
        check_subscription("x" * 200, "y" * 200)


@in_loop
async def test_they_are_refused_to_whoever_publishes_or_subscribes(new_bus: OpenBus, topic: str) -> None:
    async with new_bus() as bus:
        with pytest.raises(InvalidArgument, match="no topic with the name 'orders:eu'"):
            await bus.publish("orders:eu", b"")
        with pytest.raises(InvalidArgument, match="no topic with the name '1st'"):
            await bus.ensure_topic("1st")
        with pytest.raises(InvalidArgument, match="no subscription with the name"):
            await bus.subscribe(topic, "team:a", Recorder())
        with pytest.raises(InvalidArgument, match=r"no subscription with the name 'dead:letters\.keep'"):
            await bus.subscribe(topic, "shipping", Recorder(), dead_letter_topic="dead:letters")
    async with new_bus(prefix="dev.") as bus:
        await bus.ensure_topic("1st")
