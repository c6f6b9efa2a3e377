"""Names of topics and groups: the same rule on every driver, so that an application can move."""

from __future__ import annotations

import re

from slipstream.bus.errors import InvalidArgument

DEAD_LETTER_SUFFIX = ".DLQ"

_NAME = re.compile(r"[A-Za-z0-9_:-]+(\.[A-Za-z0-9_:-]+)*\Z")
NAME_CHARS_MAX = 200


def check_name(what: str, name: str) -> None:
    """`what` is a topic, a group or a prefix, for the message."""
    if not isinstance(name, str) or not _NAME.match(name) or len(name) > NAME_CHARS_MAX:
        raise InvalidArgument(
            f"{what} {name!r:.80} cannot be used: 1 to {NAME_CHARS_MAX} characters of A-Z a-z 0-9 _ : -, with single "
            "dots between them"
        )


def check_prefix(prefix: str) -> None:
    if prefix:
        check_name("BUS_PREFIX", prefix.removesuffix("."))


def dead_letter_topic(topic: str, configured: str | None) -> str:
    """Where the exhausted messages of a topic go; nowhere, and so "", from where they already are."""
    if configured == topic:
        raise InvalidArgument(
            f"dead_letter_topic is {topic} itself: name another, or set max_deliver=0 to have messages tried for ever"
        )
    if configured is not None:
        return configured
    return "" if topic.endswith(DEAD_LETTER_SUFFIX) else topic + DEAD_LETTER_SUFFIX


def literal_start(pattern: str) -> str:
    """What every name that matches the pattern starts with."""
    return re.split(r"[*?\[]", pattern, maxsplit=1)[0]
