"""Finds messages by their idempotency key, for as long as it is remembered."""

from __future__ import annotations

import asyncio

from slipstream.api.keys import KeyPlace, KeyPlaces
from slipstream.broker.idempotency import Operation, short
from slipstream.engine import Engine
from slipstream.server.v2.endpoint import Call, Endpoint

LOOKED_AT_A_TIME = 20_000
"""Of the keys, of which there may be a million: others get their turn in between."""


async def find_places(engine: Engine, key: str) -> list[KeyPlace]:
    """The tenant is not asked for: who has a key in hand seldom knows it."""
    state, wanted, now_ms = engine.broker.state, short(key), engine.now_ms()
    found: list[Operation] = []
    for registry in (state.produced, state.batches):
        for number, (identity, operation) in enumerate(list(registry.operations.items())):
            if number % LOOKED_AT_A_TIME == LOOKED_AT_A_TIME - 1:
                await asyncio.sleep(0)
            if identity[2] == wanted and operation.expires_ms > now_ms:
                found.append(operation)
    topics = state.topics_by_id
    return [_place(topics[each.identity[1]].name, each) for each in found if each.identity[1] in topics]


def _place(topic: str, operation: Operation) -> KeyPlace:
    first = operation.places[0] if operation.places else None
    is_batch = operation.count > 0
    return KeyPlace(
        topic=topic,
        partition=first[1] if first else 0 if is_batch else operation.partition,
        offset=first[2] if first else operation.offset,
        tenant_id=operation.identity[0],
        status=operation.status.name.lower(),  # type: ignore[arg-type]  # the names are the three words
    )


async def show_key(call: Call) -> KeyPlaces:
    return KeyPlaces(await find_places(call.engine, call.path("key")))


ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/idempotency-keys/{key:path}",
        summary="Where the message of an idempotency key went",
        answer=KeyPlaces,
        handler=show_key,
    )
]
