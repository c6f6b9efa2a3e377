"""Ids of jobs: UUIDs of version 7, which sort by the time they were made."""

from __future__ import annotations

import secrets
import uuid

from slipstream.jobs.clock import now_ms


def new_job_id() -> str:
    """RFC 9562: 48 bits of milliseconds, and 74 that are random. Python has it from 3.14 on."""
    value = now_ms() << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76  # the version
    value = value & ~(0x3 << 62) | 0x2 << 62  # the variant
    return str(uuid.UUID(int=value))


def made_at_ms(job_id: str) -> int | None:
    """When it was made; None if it is no such id: direct producers may call a job anything."""
    try:
        parsed = uuid.UUID(job_id)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 else None
