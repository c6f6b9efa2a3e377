"""What every part of the scripted stream has in common."""

from __future__ import annotations

import datetime as dt
from typing import NamedTuple

from slipstream.api import EnvelopeFields

DAY = dt.datetime(2026, 3, 14, tzinfo=dt.UTC)
"""When everything happens, by what the messages say themselves."""

TENANTS = ("acme", "globex", "initech", "", "Müller & Söhne")


class Said(NamedTuple):
    """A message before it is stored."""

    topic: str
    key: bytes
    value: bytes
    attributes: dict[str, str] | None = None
    envelope: EnvelopeFields | None = None
