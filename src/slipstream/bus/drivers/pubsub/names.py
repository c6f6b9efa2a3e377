"""Names as Pub/Sub has them: stricter than those of the bus, and with a project in front."""

from __future__ import annotations

import re

from slipstream.bus.errors import InvalidArgument

KEEP = "keep"
"""The group of the subscription that holds dead letters."""

_NAME = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~+%-]{2,254}\Z")


def subscription_name(topic: str, group: str) -> str:
    return f"{topic}.{group}"


def check_topic(topic: str) -> None:
    _check("topic", topic)


def check_subscription(topic: str, group: str) -> None:
    _check("subscription", subscription_name(topic, group))


def _check(what: str, name: str) -> None:
    if not _NAME.match(name):
        raise InvalidArgument(
            f"Pub/Sub takes no {what} with the name {name!r:.300}: it must start with a letter, and not with goog, and "
            "have 3 to 255 characters of A-Z a-z 0-9 - _ . ~ + %, with no colon"
        )
