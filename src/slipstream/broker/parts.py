"""Parts of a commit: messages that wait, in memory and seen by nobody, until their writer commits them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from slipstream.broker.errors import FailedPrecondition, InvalidArgument, Overloaded
from slipstream.broker.message import NewMessage

RETRY_AFTER_MS = 1_000


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Messages for one topic that a writer wants to store with its commit of this sequence."""

    id: str
    writer: str
    sequence: int
    topic: str
    messages: Sequence[NewMessage]
    size: int
    """Bytes, as they were sent."""
    expires_ms: int
    attempt: str = ""
    """Of the writer, to make this commit; "" where it counts none."""


class Parts:
    """At most `bytes_max` of them together, and each for `ttl_ms`. None outlives the process."""

    def __init__(self, ttl_ms: int, bytes_max: int) -> None:
        self.ttl_ms = ttl_ms
        self.bytes_max = bytes_max
        self.bytes = 0
        self._parts: dict[str, Part] = {}
        """In the order they came, which is that in which they expire."""
        self._of_commit: dict[tuple[str, int], dict[str, Part]] = {}
        """By writer and sequence, so that nobody looks through the parts of all writers."""

    def add(self, part: Part, now_ms: int) -> None:
        if part.size > self.bytes_max:
            raise InvalidArgument(
                f"{part.size} bytes are more than may be staged at all ({self.bytes_max}, max_staged_bytes): "
                "send smaller parts"
            )
        self.expire(now_ms)
        self._supersede(part)
        if self.bytes + part.size > self.bytes_max:
            raise Overloaded(
                f"{self.bytes} bytes are staged and {part.size} more do not fit (max_staged_bytes): "
                "commit what is staged, or retry later",
                RETRY_AFTER_MS,
            )
        self._parts[part.id] = part
        self._of_commit.setdefault((part.writer, part.sequence), {})[part.id] = part
        self.bytes += part.size

    def _supersede(self, part: Part) -> None:
        """Who begins anew has given up what it staged before, and may need the room."""
        if not part.attempt:
            return
        found = self._of_commit.get((part.writer, part.sequence))
        # Of an attempt that has begun, the first is its own: then there is nothing to look for.
        if found is not None and next(iter(found.values())).attempt != part.attempt:
            self._remove_all(each for each in found.values() if each.attempt != part.attempt)

    def find(self, writer: str, sequence: int, ids: Sequence[str], now_ms: int) -> list[Part]:
        """Those that a commit names; raises unless all of them are there and belong to it."""
        self.expire(now_ms)
        if len(set(ids)) < len(ids):
            raise InvalidArgument("a staged part is named twice: name each once")
        parts = []
        for part_id in ids:
            part = self._parts.get(part_id)
            if part is None or (part.writer, part.sequence) != (writer, sequence):
                raise FailedPrecondition(
                    f"nothing is staged as {part_id[:80]!r} by writer {writer} for sequence {sequence}, or not any "
                    "more (staged_ttl_ms, another attempt, or a restart); nothing was committed: stage its messages "
                    "again"
                )
            parts.append(part)
        return parts

    def forget(self, writer: str, sequence: int) -> None:
        """What the writer staged up to this sequence is committed, or never will be."""
        for name, number in [key for key in self._of_commit if key[0] == writer and key[1] <= sequence]:
            self._remove_all(self._of_commit[name, number].values())

    def take_back(self, writer: str, sequence: int, ids: Sequence[str] | None, now_ms: int) -> list[Part]:
        """Of what the writer staged for this sequence, these, or all. Those that are not there are no trouble: who asks
        twice wants the same."""
        self.expire(now_ms)
        found = self._of_commit.get((writer, sequence), {})
        wanted = found if ids is None else dict.fromkeys(ids)
        return self._remove_all(found[part_id] for part_id in wanted if part_id in found)

    def expire(self, now_ms: int) -> None:
        while self._parts and (oldest := next(iter(self._parts.values()))).expires_ms <= now_ms:
            self._remove_all([oldest])

    def _remove_all(self, parts: Iterable[Part]) -> list[Part]:
        removed = list(parts)
        for part in removed:
            key = (part.writer, part.sequence)
            del self._parts[part.id]
            del self._of_commit[key][part.id]
            if not self._of_commit[key]:
                del self._of_commit[key]
            self.bytes -= part.size
        return removed
