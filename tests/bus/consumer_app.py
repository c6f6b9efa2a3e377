"""A consumer for tests to kill: says what it gets, a line each, and never finishes it.

python -m tests.bus.consumer_app TOPIC GROUP ACK_DEADLINE MAX_DELIVER
"""

from __future__ import annotations

import asyncio
import sys

from slipstream.bus import Message, open_bus


async def main(topic: str, group: str, ack_deadline: float, max_deliver: int) -> None:
    async def hold(message: Message) -> None:
        _say(f"{message.attempt} {message.text}")
        await asyncio.Event().wait()

    async with open_bus() as bus:
        await bus.subscribe(topic, group, hold, ack_deadline=ack_deadline, max_deliver=max_deliver)
        _say("listening")
        await asyncio.Event().wait()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
