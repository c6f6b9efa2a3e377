"""Times that others have written, as far as they can be believed."""

from __future__ import annotations

LATEST_MS = 253_402_300_799_999
"""The end of the year 9999: what is later has no form as a time."""
