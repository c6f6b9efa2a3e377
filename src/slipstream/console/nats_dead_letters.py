"""Dead letters where NATS keeps the messages: listed, shown, sent back and discarded from the console."""

from __future__ import annotations

from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.bus import DeadLetter, Selection
from slipstream.console.answers import json_answer, read_json, read_query
from slipstream.console.nats import NatsTopics
from slipstream.console.sources import Noun

PLACE = "/v2/bus-dead-letters/{topic}/{offset:int}"


class LettersQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """The parameters of `GET /v2/bus-dead-letters`; all filters must match."""

    topic: str = ""
    """The topic they died in, or its dead-letter topic; absent: all."""
    group: str = ""
    error: str = ""
    """Part of the reason, in any case."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 100


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
    attributes: dict[str, str]


class LettersShown(msgspec.Struct, frozen=True):
    dead_letters: list[LetterShown]
    more: bool


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
        more = False
        async with self._topics.asked() as bus:
            chosen = Selection(group=query.group, error=query.error)
            async for letter in bus.dead_letters.list(query.topic, chosen):
                if len(found) == query.limit:
                    more = True
                    break
                found.append(_shown(letter))
        return json_answer(LettersShown(found, more))

    async def show(self, request: Request) -> Response:
        async with self._topics.asked():
            return json_answer(_shown(await self._letter(request)))

    async def redrive(self, request: Request) -> Response:
        asked = await read_json(request, RedriveOne)
        async with self._topics.asked() as bus:
            await bus.dead_letters.redrive(await self._letter(request), asked.to)
        return json_answer(Done(redriven=1))

    async def discard(self, request: Request) -> Response:
        async with self._topics.asked() as bus:
            await bus.dead_letters.discard(await self._letter(request))
        return json_answer(Done(discarded=1))

    async def _letter(self, request: Request) -> DeadLetter:
        """Raises DeadLetterMissing."""
        async with self._topics.asked() as bus:
            return await bus.dead_letters.get(request.path_params["topic"], 0, request.path_params["offset"])


def _shown(letter: DeadLetter) -> LetterShown:
    return LetterShown(
        topic=letter.topic,
        offset=letter.offset,
        origin=letter.origin,
        group=letter.group,
        reason=letter.reason,
        attempts=letter.attempts,
        died_ms=letter.died_ms,
        key=letter.key,
        value=letter.data.decode(errors="replace"),
        attributes=letter.attributes,
    )
