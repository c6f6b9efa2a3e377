"""Dead letters: finding them and giving them another chance."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Iterable
from urllib.parse import quote

import msgspec

from slipstream.api import (
    DeadLetterItem,
    DeadLetterList,
    DeadLetterQuery,
    Place,
    RedriveList,
    RedriveRequest,
    RedriveStatus,
)
from slipstream.client.part import Part
from slipstream.client.redrive import Redrive
from slipstream.client.retry import Repeat
from slipstream.client.transport import nonsense


class DeadLetters(Part):
    async def dead_letters(
        self,
        topic: str | None = None,
        *,
        group: str | None = None,
        error: str | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        redriven: bool | None = None,
    ) -> AsyncGenerator[DeadLetterItem[bytes], None]:
        """Those that match all that is given, page by page, oldest first within each topic. `topic` is the one they
        died in; `error` is part of the last error or of the reason.

        Example:
            async for letter in client.dead_letters("orders", error="timeout", redriven=False):
                print(letter.offset, letter.envelope.dlq.last_error)
        """
        query = DeadLetterQuery(topic=topic, group=group, error=error, since=since, until=until, redriven=redriven)
        while True:
            page = await self._transport.call(
                "GET", "/v2/dead-letters", DeadLetterList[bytes], Repeat.SAFE, query=query
            )
            for letter in page.dead_letters:
                yield letter
            if page.next is None:
                return
            if page.next == query.after:
                raise nonsense("GET /v2/dead-letters", ValueError(f"the page after {page.next} leads to itself"))
            query = msgspec.structs.replace(query, after=page.next)

    async def dead_letter(self, topic: str, partition: int, offset: int) -> DeadLetterItem[bytes]:
        """One dead letter, by its place in the dlq."""
        path = f"/v2/dead-letters/{quote(topic, safe='')}/{partition}/{offset}"
        return await self._transport.call("GET", path, DeadLetterItem[bytes], Repeat.SAFE)

    async def redrive(
        self,
        topic: str,
        *,
        group: str | None = None,
        error: str | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        messages: Iterable[Place | DeadLetterItem[bytes]] | None = None,
        to: str | None = None,
        all_groups: bool = False,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
    ) -> Redrive:
        """Send the dead letters of a topic that match all that is given back to where they came from, or `to` another
        topic, at most `rate` a second. Only the group that each failed for gets it, unless `all_groups` is set. The
        server works in the background: the return value is a handle.

        Example:
            redrive = await client.redrive("orders", error="timeout", rate=100)
            done = await redrive.wait()
            print(done.redriven, "sent back")
        """
        places = None if messages is None else [Place(message.partition, message.offset) for message in messages]
        request = RedriveRequest(
            topic=topic,
            group=group,
            error=error,
            since=since,
            until=until,
            messages=places,
            to=to,
            all_groups=all_groups,
            rate=rate,
            limit=limit,
            dry_run=dry_run,
        )
        # What was redriven is passed over, so a second redrive of everything is SAFE. With a limit or a rate it is not:
        # a second one would send back that many more, or as many again in each second.
        repeat = Repeat.SAFE if limit is None and rate is None else Repeat.UNDONE
        status = await self._transport.call("POST", "/v2/redrives", RedriveStatus, repeat, body=request)
        return Redrive(self._transport, status)

    async def redrives(self) -> list[RedriveStatus]:
        """Those that are under way, and the last ones that ended."""
        return (await self._transport.call("GET", "/v2/redrives", RedriveList, Repeat.SAFE)).redrives

    async def redrive_of(self, redrive_id: str) -> Redrive:
        """The handle of a redrive that somebody started before."""
        path = f"/v2/redrives/{quote(redrive_id, safe='')}"
        return Redrive(self._transport, await self._transport.call("GET", path, RedriveStatus, Repeat.SAFE))
