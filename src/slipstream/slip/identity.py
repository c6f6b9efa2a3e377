"""Names for what must be there once, however often somebody says it."""

from __future__ import annotations

import functools
import hashlib

_sha256 = hashlib.sha256


def identity(*parts: str | int) -> str:
    """One name for the same thing, whoever says it and how often: the id of a message that must be stored once."""
    return _sha256("\n".join([part if type(part) is str else str(part) for part in parts]).encode()).hexdigest()


@functools.lru_cache(1024)
def dedupe_key(correlation_id: str, step_id: str, attempt: int) -> str:
    """Names one attempt at one step of one message; of one that is run again, `correlation_id` is `c-123#1`. The parts
    are kept apart: else attempt 10 at step `s` would be attempt 0 at step `s1`.

    Kept for a moment: whoever has a message in hand asks for it three times."""
    return _sha256(f"{correlation_id}\n{step_id}\n{attempt}".encode()).hexdigest()


def end_id(correlation_id: str) -> str:
    """Of the one message that a message ends with."""
    return f"{dedupe_key(correlation_id, 'end', 0)}:end"
