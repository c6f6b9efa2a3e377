"""Publishing to a stream whose leader is gone: what was under way is sent again, in its order.

The server is real. The stream is the test's, which answers when it likes.
"""

from __future__ import annotations

import json

import pytest
from nats.aio.msg import Msg

from slipstream.bus.drivers.driver import Outgoing
from slipstream.bus.drivers.nats import publisher as module
from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.publisher import Publisher
from slipstream.bus.settings import BusSettings
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop


@in_loop
async def test_what_a_leader_took_with_it_is_sent_again_in_order_as_soon_as_there_is_another(
    nats: NatsSite, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SILENCE_S", 0.1)
    monkeypatch.setattr(module, "LOOK_S", 0.02)
    connection = Connection(BusSettings(driver="nats", nats_url=nats.url))
    await connection.open()
    stored: list[bytes] = []
    arrived: list[bytes] = []

    async def stream(msg: Msg) -> None:
        arrived.append(msg.data)
        if arrived.count(b"0") < 3:
            return  # nobody leads it: the message is lost
        if msg.data not in stored:
            stored.append(msg.data)
        await msg.respond(json.dumps({"seq": stored.index(msg.data) + 1}).encode())

    async def ensure(topic: str) -> str:
        return "stream"

    await connection.nats.subscribe(topic, cb=stream)
    publisher = Publisher(connection, ensure, timeout_s=30)
    await publisher.open()
    try:
        posted = [await publisher.post(Outgoing(topic, b"%d" % number, {})) for number in range(5)]
        while arrived.count(b"0") < 2:
            await connection.nats.flush()
        posted += [await publisher.post(Outgoing(topic, b"5", {}))]  # while the stream is silent
        assert [await each for each in posted] == ["1", "2", "3", "4", "5", "6"]
    finally:
        await publisher.close()
        await connection.close()
    assert stored == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert arrived[:6] == [b"0", b"1", b"2", b"3", b"4", b"0"], "the oldest asks whether anybody is there"
