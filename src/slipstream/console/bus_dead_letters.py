"""Dead letters of the bus: listed, shown, sent back and discarded from the console."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.bus_dead_letters import (
    BusDeadLetter,
    BusDeadLetterHandled,
    BusDeadLetterList,
    BusDeadLettersQuery,
    BusRedriveRequest,
)
from slipstream.bus import DeadLetter, Selection, TopicMissing
from slipstream.bus.dead_letters import Place
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.connected_bus import ConnectedBus
from slipstream.console.sources import Noun

VALUE_CHARS = 2_000
"""How much of each message a list contains."""
PLACE = "/v2/bus-dead-letters/{topic}/{partition:int}/{offset:int}"


class BusDeadLetters(Noun):
    """On NATS, or on a broker of our own."""

    what = "dead letters of the bus"
    link = "#/bus-dead-letters"

    def __init__(self, connected: ConnectedBus) -> None:
        self._connected = connected

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/bus-dead-letters", self.list, methods=["GET"]),
            Route(PLACE, self.show, methods=["GET"]),
            Route(PLACE, self.discard, methods=["DELETE"]),
            Route(f"{PLACE}/redrive", self.redrive, methods=["POST"]),
        ]

    async def close(self) -> None:
        await self._connected.close()

    async def list(self, request: Request) -> Response:
        query = read_query(request, BusDeadLettersQuery)
        # The overview names topics as the engine does.
        topic = query.topic.removeprefix(self._connected.settings.prefix)
        found: list[BusDeadLetter] = []
        async with self._connected.asked() as bus:
            chosen = Selection(group=query.group, error=query.error)
            listed = bus.dead_letters.list(topic, chosen, after=_after(query.after))
            async with contextlib.aclosing(listed) as letters:
                async for letter in letters:
                    if len(found) == query.limit:
                        last = found[-1]
                        return json_answer(BusDeadLetterList(found, f"{last.topic}/{last.partition}/{last.offset}"))
                    found.append(_shown(letter, VALUE_CHARS))
        return json_answer(BusDeadLetterList(found))

    async def show(self, request: Request) -> Response:
        return json_answer(_shown(await self._letter(request)))

    async def redrive(self, request: Request) -> Response:
        asked = await read_json(request, BusRedriveRequest)
        letter = await self._letter(request)
        async with self._connected.asked() as bus:
            try:
                await bus.dead_letters.redrive(letter, asked.to)
            except TopicMissing as error:  # NOT_FOUND means that the dead letter is gone
                raise Refused("FAILED_PRECONDITION", str(error)) from error
        return json_answer(BusDeadLetterHandled(redriven=1))

    async def discard(self, request: Request) -> Response:
        letter = await self._letter(request)
        async with self._connected.asked() as bus:
            await bus.dead_letters.discard(letter)
        return json_answer(BusDeadLetterHandled(discarded=1))

    async def _letter(self, request: Request) -> DeadLetter:
        place = request.path_params
        async with self._connected.asked() as bus:
            return await bus.dead_letters.get(place["topic"], place["partition"], place["offset"])


def _after(text: str) -> Place | None:
    if not text:
        return None
    topic, *numbers = text.rsplit("/", 2)
    if not topic or len(numbers) != 2 or not all(each.isascii() and each.isdigit() for each in numbers):
        raise Refused("INVALID_ARGUMENT", f"after is {text!r:.80}, and must be a place such as orders.DLQ/0/17")
    return Place(topic, int(numbers[0]), int(numbers[1]))


def _shown(letter: DeadLetter, value_chars: int | None = None) -> BusDeadLetter:
    return BusDeadLetter(
        topic=letter.topic,
        partition=letter.partition,
        offset=letter.offset,
        origin=letter.origin,
        group=letter.group,
        reason=letter.reason,
        attempts=letter.attempts,
        died_ms=letter.died_ms,
        key=letter.key,
        value=letter.data.decode(errors="replace")[:value_chars],
        attributes=letter.attributes,
    )
