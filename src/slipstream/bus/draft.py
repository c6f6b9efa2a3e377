"""A message that is to be published."""

from __future__ import annotations

import msgspec

from slipstream.bus.attributes import Attributes


class Draft(msgspec.Struct, frozen=True):
    """What `publish` takes, for `publish_all`.

    Example:
        Draft('{"books": 2}', {"customerId": 17}, key="user:1")
    """

    data: bytes | str
    attributes: Attributes | None = None
    key: str | None = None
    message_id: str | None = None
