"""Dead letters where NATS keeps the messages: listed, shown, sent back and discarded from the console."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.bus import DeadLetter, Selection, TopicMissing
from slipstream.bus.dead_letters import Place
from slipstream.console.answers import Refused, json_answer, read_json, read_query
from slipstream.console.nats import NatsTopics
from slipstream.console.sources import Noun

VALUE_CHARS = 2_000
"""How much of each message a list contains."""
PLACE = "/v2/bus-dead-letters/{topic}/{offset:int}"


class LettersQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The parameters of `GET /v2/bus-dead-letters`; all filters must match."""

    topic: str = ""
    """The topic they died in, or its dead-letter topic; absent: all."""
    group: str = ""
    error: str = ""
    """Part of the reason, in any case."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100
    after: str = ""
    """Go on behind this place: the `next` of the answer before, such as `orders.DLQ/17`."""


class LetterShown(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter, as the page has it."""

    topic: str
    offset: int
    origin: str
    group: str
    reason: str
    attempts: int
    died_ms: int
    key: str
    value: str
    """The message as text. In a list it is cut to 2,000 characters."""
    attributes: dict[str, str]


class LettersShown(msgspec.Struct, frozen=True):
    dead_letters: list[LetterShown]
    next: str | None = None
    """For `after`: where the next page begins; absent on the last page."""


class RedriveOne(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Where a dead letter is sent; by default where it came from."""

    to: str = ""


class Done(msgspec.Struct, frozen=True):
    """What was done."""

    redriven: int = 0
    discarded: int = 0


class NatsDeadLetters(Noun):
    """Uses the connection of the topics."""

    what = "dead letters on NATS"
    link = "#/dead-letters"

    def __init__(self, topics: NatsTopics) -> None:
        self._topics = topics

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v2/bus-dead-letters", self.list, methods=["GET"]),
            Route(PLACE, self.show, methods=["GET"]),
            Route(PLACE, self.discard, methods=["DELETE"]),
            Route(f"{PLACE}/redrive", self.redrive, methods=["POST"]),
        ]

    async def list(self, request: Request) -> Response:
        query = read_query(request, LettersQuery)
        found: list[LetterShown] = []
        async with self._topics.asked() as bus:
            chosen = Selection(group=query.group, error=query.error)
            listed = bus.dead_letters.list(query.topic, chosen, after=_after(query.after))
            async with contextlib.aclosing(listed) as letters:
                async for letter in letters:
                    if len(found) == query.limit:
                        return json_answer(LettersShown(found, f"{found[-1].topic}/{found[-1].offset}"))
                    found.append(_shown(letter, VALUE_CHARS))
        return json_answer(LettersShown(found))

    async def show(self, request: Request) -> Response:
        async with self._topics.asked():
            return json_answer(_shown(await self._letter(request)))

    async def redrive(self, request: Request) -> Response:
        asked = await read_json(request, RedriveOne)
        letter = await self._letter(request)
        async with self._topics.asked() as bus:
            try:
                await bus.dead_letters.redrive(letter, asked.to)
            except TopicMissing as error:  # NOT_FOUND means that the dead letter is gone
                raise Refused("FAILED_PRECONDITION", str(error)) from error
        return json_answer(Done(redriven=1))

    async def discard(self, request: Request) -> Response:
        async with self._topics.asked() as bus:
            await bus.dead_letters.discard(await self._letter(request))
        return json_answer(Done(discarded=1))

    async def _letter(self, request: Request) -> DeadLetter:
        """Raises DeadLetterMissing."""
        async with self._topics.asked() as bus:
            return await bus.dead_letters.get(request.path_params["topic"], 0, request.path_params["offset"])


def _after(text: str) -> Place | None:
    topic, _, offset = text.rpartition("/")
    if text and not (topic and offset.isascii() and offset.isdigit()):
        raise Refused("INVALID_ARGUMENT", f"after is {text!r:.80}, and must be a place such as orders.DLQ/17")
    return Place(topic, 0, int(offset)) if text else None


def _shown(letter: DeadLetter, value_chars: int | None = None) -> LetterShown:
    return LetterShown(
        topic=letter.topic,
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
