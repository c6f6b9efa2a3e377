"""A worker in a process of its own, for tests that kill it. It says what it does, a line each.

    python -m tests.client.worker_app URL TOPIC CONCURRENCY LEASE_MS [DRAIN_MS]

A message `wait` is at work until a line comes on stdin; `hang` until it is cancelled; `deaf` does not even let itself
be cancelled; `block` blocks a thread of asyncio's own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading

from slipstream.client import Message, Worker

url, topic, concurrency, lease_ms, *rest = sys.argv[1:]
app = Worker(url, drain_timeout_ms=int(rest[0]) if rest else 30_000, poll_ms=200)


def say(word: str, message: Message) -> None:
    sys.stdout.write(f"{word} {message.text} {message.attempts}\n")
    sys.stdout.flush()


@app.handler(topic, group="g", concurrency=int(concurrency), lease_ms=int(lease_ms))
async def handle(message: Message) -> None:
    say("begin", message)
    match message.text:
        case "wait":
            await asyncio.to_thread(sys.stdin.readline)
        case "hang":
            await asyncio.Event().wait()
        case "deaf":
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    say("deaf", message)
        case "block":
            await asyncio.to_thread(threading.Event().wait)
    say("end", message)


@app.handler(topic, group="threads", concurrency=1, lease_ms=int(lease_ms))
def handle_in_a_thread(message: Message) -> None:
    if message.text == "block in a thread":
        say("begin", message)
        threading.Event().wait()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(message)s")
    app.run()
