"""Orders come in. One group ships them, another counts them, and what cannot be shipped lands in the dead letters.

    python examples/bus_app.py                            # the broker inside this process, in ./slipstream-data
    MESSAGE_BUS_DRIVER=http python examples/bus_app.py    # a server: slipstream serve
    MESSAGE_BUS_DRIVER=nats python examples/bus_app.py    # NATS JetStream: docker compose up -d nats
    MESSAGE_BUS_DRIVER=pubsub python examples/bus_app.py  # Google Pub/Sub, or PUBSUB_EMULATOR_HOST=localhost:8085

The engine changes, and nothing in here does.
"""

import asyncio
import contextlib
import uuid

from slipstream.bus import Message, Reject, open_bus

ORDERS = ["two books", "one lamp", "a dragon", "three pens"]


async def main() -> None:
    run = uuid.uuid4().hex  # tells our orders from those that an earlier run may have left
    to_do = {("count", order) for order in ORDERS}
    to_do |= {("bury" if order == "a dragon" else "ship", order) for order in ORDERS}
    done = asyncio.Event()

    def tick_off(work: str, message: Message) -> None:
        if message.correlation_id == run:
            to_do.discard((work, message.text))  # a message may come twice, so this must not mind
        if not to_do:
            done.set()

    async def ship(message: Message) -> None:
        if message.text == "a dragon":
            raise Reject("we do not ship dragons")  # any other exception: it is tried again, up to max_deliver times
        print(f"shipped {message.text} to {message.attributes['city']}", flush=True)
        tick_off("ship", message)  # when a handler returns, its message is done; until then nobody else gets it

    async def count(message: Message) -> None:
        print(f"counted {message.text}", flush=True)
        tick_off("count", message)

    async def bury(message: Message) -> None:
        print(f"dead letter: {message.text}, because {message.attributes['deadLetterReason']}", flush=True)
        tick_off("bury", message)

    async with open_bus() as bus:
        # First subscribe, then publish: on Pub/Sub a new group sees nothing older than itself.
        await bus.subscribe("orders", "shipping", ship, max_in_flight=8)
        await bus.subscribe("orders", "statistics", count)
        await bus.subscribe("orders.DLQ", "undertaker", bury)
        for order in ORDERS:
            await bus.publish("orders", order, {"city": "Bremen", "correlationId": run}, key="customer:17")
        await done.wait()
    print("all done", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
