"""Where a slip is, told by progress that may arrive in any order: what both stores keep of a slip besides its history.

Each part is the oldest or the newest of its kind, and those are the same in whatever order they are heard. Only between
two of the same millisecond the one heard later counts as newer: who tells them tells them in turn.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from slipstream.slip.store.store import Tracked

NEVER_MS = -1

RERUN = "rerun"


class Mark(msgspec.Struct, frozen=True, rename="camel"):
    """One progress, as far as the list is concerned."""

    at_ms: int = NEVER_MS
    step: str = ""
    state: str = ""


class Summary(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    begun_ms: int
    newest: Mark
    end: Mark
    """The newest end."""
    rerun_ms: int
    """The newest time that it was sent on its way again."""
    expires_ms: int

    @property
    def ended(self) -> bool:
        return self.end.at_ms != NEVER_MS and self.end.at_ms >= self.rerun_ms

    @property
    def moved_ms(self) -> int:
        return self._shown.at_ms

    @property
    def _shown(self) -> Mark:
        return self.end if self.ended else self.newest

    def and_then(self, heard: Summary) -> Summary:
        """Both, of which `heard` was heard later."""
        return Summary(
            kind=self.kind or heard.kind,
            begun_ms=min(self.begun_ms, heard.begun_ms),
            newest=_newer(self.newest, heard.newest),
            end=_newer(self.end, heard.end),
            rerun_ms=max(self.rerun_ms, heard.rerun_ms),
            expires_ms=max(self.expires_ms, heard.expires_ms),
        )

    def tracked(self, slip: str) -> Tracked:
        shown = self._shown
        return Tracked(
            slip=slip,
            kind=self.kind,
            step=shown.step,
            state=shown.state,
            begun_ms=self.begun_ms,
            moved_ms=shown.at_ms,
            ended=self.ended,
        )


def summary_of(*, at_ms: int, kind: str, step: str, state: str, ended: bool, ttl_ms: int) -> Summary:
    """Of a slip of which no more is known than this progress."""
    mark = Mark(at_ms, step, state)
    summary = Summary(kind, at_ms, mark, end=Mark(), rerun_ms=NEVER_MS, expires_ms=at_ms + ttl_ms)
    if ended:
        return replace(summary, end=mark)
    return replace(summary, rerun_ms=at_ms) if state == RERUN else summary


def _newer(mark: Mark, heard: Mark) -> Mark:
    return heard if heard.at_ms >= mark.at_ms else mark


_decoder = msgspec.json.Decoder(Summary)
_encoder = msgspec.json.Encoder()


def decode_summary(data: bytes) -> Summary:
    return _decoder.decode(data)


def encode_summary(summary: Summary) -> bytes:
    return _encoder.encode(summary)
