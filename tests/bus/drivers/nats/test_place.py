"""The subject that answers to a message, of both lengths that servers give it."""

from __future__ import annotations

import pytest

from slipstream.bus.drivers.nats.place import Place, place_of


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.orders.shipping.2.17.5.1700000000123456789.3",
        "$JS.ACK.hub.account.orders.shipping.2.17.5.1700000000123456789.3.token",
        "$JS.ACK._.account.orders.shipping.2.17.5.1700000000123456789.3",
    ],
)
def test_it_tells_where_a_message_is(reply: str) -> None:
    assert place_of(reply) == Place("shipping", 2, 17, 5, 1_700_000_000_123)
