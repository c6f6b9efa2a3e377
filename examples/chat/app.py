"""A chat about an invented product: intent, retrieval, reply, formatter and egress, along a routing slip.

    python examples/chat/app.py "how do I reset it?"      # router and workers in this process, on the server that runs
                                                          # here, or with the broker in this process as well
    python examples/chat/app.py                           # asks again and again, until Ctrl-D
    MESSAGE_BUS_DRIVER=nats python examples/chat/app.py   # the same on NATS; or http, or pubsub
    CHAT_STREAM=1 python examples/chat/app.py             # shows the pieces of a reply as they come
    CHAT_MODEL_URL=http://127.0.0.1:8000/v1 python examples/chat/app.py     # a model behind an HTTP endpoint

Without CHAT_MODEL_URL rules write the replies, and no service is needed. The way of a message is in routes.yaml.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from pathlib import Path

from model import choose_model
from slipstream.slip import Router, serving
from terminal import NoAnswer, Terminal, lines
from workers import make_worker, open_library

ROUTES = Path(__file__).parent / "routes.yaml"

# Topics and a store of its own: a router beside it, such as that of `slipstream up`, has other routes.
os.environ.setdefault("BUS_PREFIX", "chat.")
os.environ.setdefault("SLIP_STORE", "slipstream-data/chat.db")


async def main(questions: list[str]) -> int:
    worker = make_worker(choose_model(), open_library())
    async with serving(Router(ROUTES), worker) as bus:
        terminal = Terminal(bus, stream=os.environ.get("CHAT_STREAM") == "1")
        await terminal.listen()  # before anything is asked: on Pub/Sub a new group sees nothing older than itself
        if questions:
            return await answer(terminal, " ".join(questions))
        async for line in lines():
            await answer(terminal, line)
    return 0


async def answer(terminal: Terminal, question: str) -> int:
    try:
        print(await terminal.ask(question), flush=True)
    except NoAnswer as error:
        print(f"no answer: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=os.environ.get("CHAT_LOG", "CRITICAL"))
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(asyncio.run(main(sys.argv[1:])))
