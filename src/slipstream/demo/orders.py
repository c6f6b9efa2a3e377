"""The third scene: a consumer with a bug, the dead letters it leaves, and a redrive once the bug is mended."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from slipstream.api import DeadLetterItem
from slipstream.client import AsyncClient, Message, Reject, Worker
from slipstream.demo.scene import SceneFailed, Tell

TOPIC = "demo.orders"
GROUP = "billing"
PARTITIONS = 2
ORDERS = 20
BAD = 13
"""The number of the order whose amount is a word."""
LEFT = 17
"""The number of the order that has no amount: its dead letter is left to who looks at the console."""
AMOUNTS = {BAD: "twelve", LEFT: None}
LETTER_S = 15.0


class Orders(msgspec.Struct, frozen=True):
    billed: int
    letter: DeadLetterItem[bytes]


async def bill(client: AsyncClient, run: str, tell: Tell) -> Orders:
    """Produces orders and bills them, but for the two that the consumer does not understand."""
    await client.create_topic(TOPIC, PARTITIONS)
    tell(0, ORDERS)
    for number in range(1, ORDERS + 1):
        order = {"run": run, "number": number, "amount": AMOUNTS.get(number, 10 + number)}
        await client.produce(TOPIC, json.dumps(order), key=f"customer-{number % 5}")
    seen: dict[int, bool] = {}

    def handle(order: dict[str, Any]) -> None:
        fits = isinstance(order.get("amount"), int)
        if order.get("run") == run:
            seen[order["number"]] = fits
            tell(len(seen), ORDERS)
        if not fits:
            raise Reject(f"the amount is no number: {order.get('amount')!r}")

    await _consume(client, handle, lambda: len(seen) == ORDERS)
    return Orders(sum(seen.values()), await _letter(client, run))


async def redrive(client: AsyncClient, run: str, letter: DeadLetterItem[bytes], tell: Tell) -> dict[str, Any]:
    """Sends the dead letter back, to a consumer that understands words; returns the order it was."""
    tell(0, 2)
    handle = await client.redrive(TOPIC, messages=[letter])
    done = await handle.wait()
    if done.redriven != 1:
        raise SceneFailed(f"the redrive of {letter.topic} sent back {done.redriven} messages, not one")
    tell(1, 2)
    billed: list[dict[str, Any]] = []

    def understand(order: dict[str, Any]) -> None:
        if order.get("run") == run and order.get("number") == BAD:
            billed.append(order)

    await _consume(client, understand, lambda: bool(billed))
    tell(2, 2)
    return billed[0]


async def _consume(client: AsyncClient, handle: Any, is_done: Any) -> None:
    """As a service does, until it has seen what it wants. What an earlier demonstration left is billed as well."""
    worker = Worker(client=client, poll_ms=250)

    @worker.handler(TOPIC, group=GROUP, concurrency=4)
    async def each(message: Message) -> None:
        try:
            handle(json.loads(message.value))
        finally:
            if is_done():
                worker.stop()

    await worker.serve()


async def _letter(client: AsyncClient, run: str) -> DeadLetterItem[bytes]:
    """The one that can be mended. The broker has them when the consumer's no has arrived."""
    letters: dict[int, DeadLetterItem[bytes]] = {}
    try:
        async with asyncio.timeout(LETTER_S):
            while letters.keys() != AMOUNTS.keys():
                async for letter in client.dead_letters(TOPIC, redriven=False):
                    order = json.loads(letter.value)
                    if order.get("run") == run:
                        letters[order["number"]] = letter
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise SceneFailed(
            f"{TOPIC}: {len(letters)} of {len(AMOUNTS)} refused orders are dead letters after {LETTER_S:.0f} s"
        ) from None
    return letters[BAD]
