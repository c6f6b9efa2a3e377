"""The second scene: chat messages and refunds along their routing slips."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from slipstream.bus import Bus
from slipstream.demo.scene import Tell
from slipstream.slip import Progress, submit

SOURCE = "slipstream.demo"
EVENTS = "slip.events"

QUESTIONS = (
    "hello",
    "how do I reset it?",
    "the valve drips, is that one of the leaks?",
    "how long does the battery last?",
    "can it stay outside in winter?",
    "how do I pair it with a phone?",
    "good morning",
    "who wrote the book about it?",
)


class Letter(msgspec.Struct, frozen=True):
    """A message to send."""

    correlation_id: str
    type: str
    payload: dict[str, Any]


class Slips(msgspec.Struct, frozen=True):
    """What was told of them, by correlationId."""

    told: dict[str, list[Progress]]
    poison: str
    """The one that nobody can answer."""
    undone: str
    """The one that failed late, and whose earlier step was undone."""
    waiting: str
    """The one that waits for somebody to approve it."""
    retried: str
    """One that was."""
    traced: str
    """The one whose trace leads to a download."""

    def having(self, kind: str) -> list[str]:
        """Those of which this was told."""
        return [each for each, news in self.told.items() if any(progress.kind == kind for progress in news)]


def letters(run: str, attachment: str) -> list[Letter]:
    """The third of them needs three attempts, and the last cannot be answered."""
    chat = [
        Letter(f"{run}-chat-{number}", "chat.message.v1", {"text": text, "userId": "u-77"})
        for number, text in enumerate(QUESTIONS, 1)
    ]
    chat[2].payload["failures"] = 2
    chat[3].payload["attachment"] = attachment
    return [
        *chat,
        Letter(f"{run}-poison", "chat.message.v1", {"text": "", "userId": "u-13"}),
        Letter(f"{run}-refund-small", "refund.requested.v1", {"amount": 20, "account": "ada"}),
        Letter(f"{run}-refund-closed", "refund.requested.v1", {"amount": 35, "account": "closed"}),
        Letter(f"{run}-refund-large", "refund.requested.v1", {"amount": 480, "account": "grace"}),
    ]


async def send(bus: Bus, run: str, attachment: str, tell: Tell) -> Slips:
    """Sends them, and returns when each has ended, or waits for a person."""
    wanted = {letter.correlation_id: letter for letter in letters(run, attachment)}
    told: dict[str, list[Progress]] = {name: [] for name in wanted}
    tell(0, len(wanted))
    async with _hearing(bus, told, lambda: tell(_done(told), len(wanted))) as all_done:
        for letter in wanted.values():
            await submit(bus, letter.type, letter.payload, source=SOURCE, correlation_id=letter.correlation_id)
        await all_done.wait()
    return Slips(
        told=told,
        poison=f"{run}-poison",
        undone=f"{run}-refund-closed",
        waiting=f"{run}-refund-large",
        retried=f"{run}-chat-3",
        traced=f"{run}-chat-4",
    )


@contextlib.asynccontextmanager
async def _hearing(bus: Bus, told: dict[str, list[Progress]], news: Callable[[], None]) -> AsyncIterator[asyncio.Event]:
    """Listens without taking anything from anybody; the event is set when all have come to rest."""
    listening, all_done = asyncio.Event(), asyncio.Event()

    async def hear() -> None:
        async with contextlib.aclosing(bus.tap(EVENTS, listening=listening)) as passing:
            async for stored in passing:
                for progress in msgspec.json.decode(stored.data, type=list[Progress]):
                    if progress.correlation_id in told:
                        told[progress.correlation_id].append(progress)
                news()
                if _done(told) == len(told):
                    all_done.set()
                    return

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(hear())
        await listening.wait()
        yield all_done
        task.cancel()


def _done(told: Mapping[str, list[Progress]]) -> int:
    rest = {"completed", "dead-lettered", "waiting"}
    return sum(any(progress.kind in rest for progress in news) for news in told.values())
