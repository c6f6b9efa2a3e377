"""Where questions come from, and answers go to: a user at a terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from collections.abc import AsyncIterator

from slipstream.bus import Bus, Message
from slipstream.slip import decode, submit

NAME = os.environ.get("CHAT_TERMINAL") or socket.gethostname()
REPLIES = f"chat.replies.{NAME}"
"""Terminals that share an engine have a topic each: give a second one on the same machine another CHAT_TERMINAL."""
GROUP = f"terminal-{NAME}"


class NoAnswer(Exception):
    """The message is a dead letter, and this is why."""


class Terminal:
    def __init__(self, bus: Bus, *, stream: bool) -> None:
        self._bus = bus
        self._stream = stream
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._shown: dict[str, asyncio.Event] = {}
        """Set when the last piece of a reply is on the terminal."""

    async def listen(self) -> None:
        await self._bus.subscribe(REPLIES, GROUP, self._deliver)
        await self._bus.subscribe("internal.deadletter.v1", GROUP, self._give_up)
        if self._stream:
            await self._bus.subscribe("llm.chunk.v1", GROUP, self._show_piece, max_in_flight=1)

    async def ask(self, text: str) -> str:
        """Raises NoAnswer."""
        payload = {
            "text": text,
            "userId": os.environ.get("CHAT_USER", "u-77"),
            "memory": os.environ.get("CHAT_MEMORY", "1") == "1",
            "stream": self._stream,
        }
        correlation_id = os.urandom(8).hex()
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[correlation_id] = answer
        shown = self._shown[correlation_id] = asyncio.Event()
        await submit(
            self._bus,
            "chat.message.v1",
            payload,
            source="examples.chat",
            correlation_id=correlation_id,
            reply_to=REPLIES,
        )
        reply = await answer
        if self._stream:  # the whole may overtake its pieces, which are another topic
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(shown.wait(), 5)
        del self._shown[correlation_id]
        return reply

    async def _deliver(self, message: Message) -> None:
        event = decode(message.data)
        answer = self._asked.pop(event.envelope.correlation_id, None)
        if answer is not None:  # else it was delivered before, or asked by one that is gone
            answer.set_result(event.payload["reply"])

    async def _give_up(self, message: Message) -> None:
        letter = message.json()
        answer = self._asked.pop(message.attributes.get("correlationId", ""), None)
        if answer is not None:
            step, error = letter.get("lastStep") or {}, letter["error"]
            answer.set_exception(NoAnswer(f"{step.get('id', 'router')}: {error['code']}: {error.get('message', '')}"))

    async def _show_piece(self, message: Message) -> None:
        chunk = decode(message.data)
        shown = self._shown.get(chunk.envelope.correlation_id)
        if shown is None:
            return
        print(chunk.payload["text"], end="", flush=True)
        if "totalChunks" in chunk.payload:
            print(flush=True)
            shown.set()


async def lines() -> AsyncIterator[str]:
    """What is typed, until its end. In a thread, because a terminal cannot be waited for otherwise; a daemon, because
    it may be waiting when the program ends."""
    loop, typed = asyncio.get_running_loop(), asyncio.Queue[str | None]()

    def read() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(typed.put_nowait, line)
        loop.call_soon_threadsafe(typed.put_nowait, None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await typed.get()) is not None:
        yield line.strip()
