"""Commits: what many processes stage is stored together, once, by one of them."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote

from slipstream.api import (
    CommitRequest,
    CommitResponse,
    ConsumedWindow,
    Staged,
    StageQuery,
    Unstaged,
    UnstageRequest,
    WriterInfo,
)
from slipstream.client.part import Part
from slipstream.client.produce import Outgoing, composed
from slipstream.client.retry import Repeat


class Commits(Part):
    async def stage(
        self, topic: str, messages: Iterable[Outgoing], *, writer: str, sequence: int, attempt: str = ""
    ) -> Staged:
        """Leaves messages with the server until `commit` names them; nobody sees them before. With an `attempt`, what
        other attempts at the same commit have staged is forgotten.

        Example:
            part = await client.stage("orders", ["a", "b"], writer="import", sequence=7)
            await client.commit("import", 7, [part.staged])
        """
        query = StageQuery(writer=writer, sequence=sequence, topic=topic, attempt=attempt)
        # SAFE: a part that no commit names is never stored.
        return await self._transport.call(
            "POST", "/v2/staged", Staged, Repeat.SAFE, body=composed(messages), query=query
        )

    async def unstage(self, writer: str, sequence: int, staged: Iterable[str] | None = None) -> Unstaged:
        """Forgets these parts, or all that the writer has staged for this sequence: the commit will not be made."""
        request = UnstageRequest(writer=writer, sequence=sequence, staged=None if staged is None else list(staged))
        return await self._transport.call("POST", "/v2/unstage", Unstaged, Repeat.SAFE, body=request)

    async def commit(
        self,
        writer: str,
        sequence: int,
        staged: Iterable[str] = (),
        *,
        consumed: Iterable[ConsumedWindow] = (),
    ) -> bool:
        """Stores all messages of these parts, in however many topics, or none. False if the writer had committed this
        sequence, or a higher one, before; then nothing is stored.

        With `consumed`, groups go on behind what the messages were made of, in the same step. Raises Conflict where a
        part is not there any more, stage its messages again; or where a group is not at the beginning of its window.
        """
        request = CommitRequest(writer=writer, sequence=sequence, staged=list(staged), consumed=list(consumed))
        # KEYED: the sequence is the key. After a lost answer it may be False though this very call has done it.
        answer = await self._transport.call("POST", "/v2/commit", CommitResponse, Repeat.KEYED, body=request)
        return answer.committed

    async def writer_sequence(self, writer: str) -> int | None:
        """Of the writer's last commit; None for one that has made none."""
        path = f"/v2/writers/{quote(writer, safe='')}"
        return (await self._transport.call("GET", path, WriterInfo, Repeat.SAFE)).sequence
