"""`GET /v2/search`: a box that takes any id, and says where it leads."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.events import TopicStats
from slipstream.api.overview import SearchAnswer, SearchHit, SearchQuery
from slipstream.console.answers import Refused, json_answer, read_query
from slipstream.console.sources import Away, Noun, StatsSource

log = logging.getLogger(__name__)

HITS_MAX = 50
PATIENCE_S = 5.0


_PLACE = re.compile(r"(?P<topic>[A-Za-z0-9._:-]+)/(?P<partition>\d{1,9})/(?P<offset>\d{1,18})")


class Search:
    """Asks all nouns at once. One that cannot answer now keeps the others from nothing. What the broker has is known
    from its newest numbers."""

    def __init__(self, nouns: Sequence[Noun], topics: Callable[[], Sequence[TopicStats]], broker: StatsSource) -> None:
        self._nouns = nouns
        self._topics = topics
        self._broker = broker

    def routes(self) -> list[BaseRoute]:
        return [Route("/v2/search", self.search, methods=["GET"])]

    async def search(self, request: Request) -> Response:
        text = read_query(request, SearchQuery).q.strip()
        if not text:
            raise Refused("INVALID_ARGUMENT", "q is empty: type an id, or the beginning of a name")
        asked = [self._patiently(noun.what, noun.search(text)) for noun in self._nouns]
        found = await asyncio.gather(self._patiently("idempotency keys", self._by_key(text)), *asked)
        hits = [*in_topics(text, self._topics()), *(hit for hits in found for hit in hits)]
        hits.sort(key=lambda hit: (hit.text != text, not hit.text.startswith(text)))
        return json_answer(SearchAnswer(hits[:HITS_MAX]))

    async def _by_key(self, text: str) -> list[SearchHit]:
        places = await self._broker.places(text)
        return [_message(place.topic, place.partition, place.offset) for place in places if place.offset >= 0]

    async def _patiently(self, what: str, asking: Awaitable[list[SearchHit]]) -> list[SearchHit]:
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asking
        except (Refused, Away, TimeoutError) as error:
            log.info("%s were not searched: %s", what, error or "no answer in time")
            return []
        except Exception:
            log.exception("%s could not be searched", what)
            return []


def _message(topic: str, partition: int, offset: int) -> SearchHit:
    where = urlencode({"partition": partition, "offset": offset})
    link = f"#/topics/{_path(topic)}?{where}"
    return SearchHit(kind="message", text=f"{topic}/{partition}/{offset}", link=link)


def in_topics(text: str, topics: Sequence[TopicStats]) -> Iterator[SearchHit]:
    """Messages by their place, topics, and groups: `billing`, or `orders/billing`."""
    names = {topic.topic for topic in topics}
    place = _PLACE.fullmatch(text)
    if place is not None and place["topic"] in names:
        yield _message(place["topic"], int(place["partition"]), int(place["offset"]))
    found = 0
    for topic in topics:
        if text in topic.topic:
            found += 1
            yield SearchHit(kind="topic", text=topic.topic, link=f"#/topics/{_path(topic.topic)}")
        for group in topic.groups:
            if text in group.group or text in f"{topic.topic}/{group.group}":
                found += 1
                link = f"#/groups/{_path(topic.topic)}/{_path(group.group)}"
                yield SearchHit(kind="group", text=f"{topic.topic}/{group.group}", link=link)
        if found >= HITS_MAX:
            return


def _path(name: str) -> str:
    return quote(name, safe="")
