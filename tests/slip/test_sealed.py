"""Events whose payload stays the text it came as."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.slip.event import Envelope, Event, Malformed, RoutingStep, Status, encode
from slipstream.slip.incoming import receive
from slipstream.slip.sealed import receive_sealed
from slipstream.slip.slip import active, settled, with_step

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)

EVENT = Event(
    Envelope("1", "test", "c-1", routing_slip=(RoutingStep("embed", Status.PENDING, attempt=0),)),
    "order.v1",
    {"text": "hällo", "n": [1, 2.5, None]},
)


def test_an_event_goes_through_as_it_is() -> None:
    data = encode(EVENT)
    assert encode(receive_sealed(data)) == data


def test_its_slip_changes_and_its_payload_does_not() -> None:
    spaced = encode(EVENT).replace(b'"n":[1,2.5,null]', b'"n" : [1, 2.50,\nnull]')
    event = receive_sealed(spaced)
    step = active(event)
    assert step is not None
    changed = receive(encode(with_step(event, settled(step, Status.OK, NOW, began=NOW))))
    assert changed.payload == EVENT.payload
    ended = changed.envelope.routing_slip[0]
    assert (ended.status, ended.started_at, ended.ended_at, ended.attempt) == (Status.OK, NOW, NOW, 0)


def test_an_event_without_a_payload_has_null() -> None:
    data = encode(EVENT).partition(b',"payload"')[0] + b"}"
    assert encode(receive_sealed(data)).endswith(b'"payload":null}')


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"envelope": {}}',
        encode(EVENT)[:-1],
        encode(EVENT).replace(b'"v":"1"', b'"v":"2"'),
        encode(EVENT).replace(b'"id":"embed"', b'"id":"embed","x":1'),
        encode(EVENT).replace(b'"n":[1,2.5,null]', b'"n":' + b"[" * 300 + b"]" * 300),
    ],
)
def test_what_cannot_be_followed_is_malformed_here_as_there(data: bytes) -> None:
    with pytest.raises(Malformed) as there:
        receive(data)
    with pytest.raises(Malformed) as here:
        receive_sealed(data)
    assert (here.value.event is None) == (there.value.event is None)
