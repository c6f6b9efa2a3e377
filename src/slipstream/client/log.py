"""Reading what a topic holds, without a group: nothing is leased and nobody's progress changes."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

import msgspec

from slipstream.api import (
    ARROW,
    LogMessage,
    OffsetsRequest,
    OffsetsResponse,
    ReadQuery,
    ReadResponse,
    SegmentList,
    SegmentsQuery,
)
from slipstream.client.part import Part, topic_path
from slipstream.client.retry import Repeat
from slipstream.client.transport import nonsense

if TYPE_CHECKING:
    import pyarrow

WAIT_MS = 20_000
"""How long one request of `scan(follow=True)` waits for something new."""


class Selection(TypedDict, total=False):
    """Which messages. What is absent does not limit."""

    from_: int | None
    """The first offset; absent: the oldest there is."""
    to: int | None
    """Before this offset; absent: all that is there now."""
    since: dt.datetime | None
    """Stored at this time or later."""
    until: dt.datetime | None
    """Stored before this time."""
    last: int | None
    """Of what the rest selects, the newest so many."""
    max_bytes: int
    """Of keys and values in one request, about."""


class Log(Part):
    async def read(
        self,
        topic: str,
        partition: int | None = None,
        *,
        limit: int = 1_000,
        wait_ms: int = 0,
        **selection: Unpack[Selection],
    ) -> ReadResponse[bytes]:
        """One page of a partition, which must be named where there are several. Read on from its `next_offset`.

        Raises OffsetOutOfRange where retention has removed what was asked for.

        Example:
            page = await client.read("orders", 0, last=10)
        """
        query = ReadQuery(partition=partition, limit=limit, wait_ms=wait_ms, **selection)
        return await self._transport.call(
            "GET", _path(topic), ReadResponse[bytes], Repeat.SAFE, query=query, wait_ms=wait_ms
        )

    async def scan(
        self, topic: str, partition: int | None = None, *, follow: bool = False, **selection: Unpack[Selection]
    ) -> AsyncGenerator[LogMessage[bytes], None]:
        """Every message of the selection, page by page; with `follow` also those that are stored from now on.

        Example:
            async for message in client.scan("orders", 0, since=yesterday):
                print(message.offset, message.value)
        """
        async for messages in self._scan_pages(topic, partition, follow=follow, **selection):
            for message in messages:
                yield message

    async def _scan_pages(
        self, topic: str, partition: int | None = None, *, follow: bool = False, **selection: Unpack[Selection]
    ) -> AsyncGenerator[list[LogMessage[bytes]], None]:
        query = ReadQuery(partition=partition, wait_ms=WAIT_MS if follow else 0, **selection)
        while True:
            page = await self._transport.call(
                "GET", _path(topic), ReadResponse[bytes], Repeat.SAFE, query=query, wait_ms=query.wait_ms
            )
            yield page.messages
            if not follow and (page.next_offset >= (query.to or page.end_offset) or not page.messages):
                return
            if page.messages:
                _check_progress(query, page.next_offset, topic)
            query = _onward(query, page.next_offset, None if follow else page.end_offset)

    async def offsets(
        self,
        topics: Sequence[str] | None = None,
        *,
        since: dt.datetime | None = None,
        known: Mapping[str, Sequence[int]] | None = None,
        wait_ms: int = 0,
    ) -> OffsetsResponse:
        """Where the logs of these topics, or of all, begin and end, with one request. Names that are no topic are
        listed as `missing`.

        With `known`, the end offsets of an earlier answer by topic, and `wait_ms` it returns when they are others, when
        there are more partitions or other topics, or when the time is up.

        Example:
            for topic in (await client.offsets(["orders"], since=yesterday)).topics:
                print(topic.name, [partition.since_offset for partition in topic.partitions])
        """
        request = OffsetsRequest(
            topics=None if topics is None else list(topics),
            since=since,
            known=None if known is None else {name: list(ends) for name, ends in known.items()},
            wait_ms=wait_ms,
        )
        return await self._transport.call(
            "POST", "/v2/offsets", OffsetsResponse, Repeat.SAFE, body=request, wait_ms=wait_ms
        )

    async def segments(
        self, topic: str, partition: int | None = None, *, from_: int | None = None, to: int | None = None
    ) -> SegmentList:
        """The files that hold a partition, or a range of it, for who reads them on the server's machine. Retention and
        compaction may remove each of them right afterwards; then `read` has what there is.

        Raises OffsetOutOfRange where retention has removed what was asked for.

        Example:
            listed = await client.segments("orders", 0)
            paths = [f"{listed.directory}/{segment.path}" for segment in listed.segments]
        """
        query = SegmentsQuery(partition=partition, from_=from_, to=to)
        return await self._transport.call("GET", topic_path(topic, "segments"), SegmentList, Repeat.SAFE, query=query)

    async def read_arrow(
        self, topic: str, partition: int | None = None, **selection: Unpack[Selection]
    ) -> pyarrow.Table:
        """The whole selection as an Arrow table, for whatever works on columns. Needs memory for all of it.

        Example:
            table = await client.read_arrow("orders", 0, since=yesterday)
            table.column("value")
        """
        import pyarrow as pa  # noqa: PLC0415 - slow to import, and only needed here

        query = ReadQuery(partition=partition, limit=ARROW_ROWS, **selection)
        pages: list[pyarrow.Table] = []
        while True:
            answer = await self._transport.ask("GET", _path(topic), Repeat.SAFE, query=query, accept=ARROW)
            try:
                with pa.ipc.open_stream(answer.body) as reader:
                    pages.append(reader.read_all())
                next_offset = int(answer.headers["Slipstream-Next-Offset"])
                end_offset = int(answer.headers["Slipstream-End-Offset"])
            except (pa.ArrowInvalid, OSError, KeyError, ValueError) as error:
                raise nonsense(f"GET {_path(topic)}", error) from error
            if next_offset >= (query.to or end_offset) or not pages[-1].num_rows:
                return pa.concat_tables(pages)
            _check_progress(query, next_offset, topic)
            query = _onward(query, next_offset, end_offset)


ARROW_ROWS = 100_000
"""Of a page: `max_bytes` is what limits it."""


def _onward(query: ReadQuery, next_offset: int, end_offset: int | None) -> ReadQuery:
    """The page after this one. The end stays where the first page saw it, so that a reader comes to an end even if
    the producers are faster; `last` and `since` have said where to begin, and are spent."""
    return msgspec.structs.replace(query, from_=next_offset, to=query.to or end_offset, since=None, last=None)


def _check_progress(query: ReadQuery, next_offset: int, topic: str) -> None:
    """Who turned pages that lead nowhere would never come to an end."""
    if next_offset <= (query.from_ or 0):
        raise nonsense(f"GET {_path(topic)}", ValueError(f"a page from {query.from_} leads to {next_offset}"))


def _path(topic: str) -> str:
    return topic_path(topic, "messages")
