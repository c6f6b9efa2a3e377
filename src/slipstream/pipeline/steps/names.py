"""The columns that every row has, and those of an answer that are not fields of the payload."""

from __future__ import annotations

ROW, CORRELATION_ID, TYPE, ATTEMPT, PAYLOAD = "row", "correlation_id", "type", "attempt", "payload"
STATUS, NOTES, ERROR = "status", "notes", "error"
GIVEN = (ROW, CORRELATION_ID, TYPE, ATTEMPT)
"""Which may come back, and mean nothing."""
RESERVED = frozenset({*GIVEN, PAYLOAD, STATUS, NOTES, ERROR})
