"""Attributes as NATS headers, 1:1, and what headers cannot carry beside them."""

from __future__ import annotations

import contextlib
import json
import re

import msgspec

KEY = "Slipstream-Key"
ODD_KEY = "Slipstream-Key-Json"
ODD = "Slipstream-Attributes"
"""JSON of the attributes that would not arrive as they were: nats-py strips values and joins their lines, and the
server acts upon names of its own (`Nats-Rollup` would empty the stream)."""
MESSAGE_ID = "Nats-Msg-Id"

_PLAIN_NAME = re.compile(r"(?!nats-|slipstream-)[A-Za-z0-9_.!#$%&'*+^`|~-]+", re.IGNORECASE)
_PLAIN_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")

_decode = msgspec.json.Decoder(dict[str, str]).decode

_plain_names: set[str] = set()
"""Applications have few names, and use them again and again."""


def to_headers(attributes: dict[str, str], key: str, message_id: str) -> dict[str, str]:
    headers = {MESSAGE_ID: message_id}
    odd: dict[str, str] = {}
    for name, value in attributes.items():
        if (name in _plain_names or _is_plain(name)) and _PLAIN_VALUE.fullmatch(value):
            headers[name] = value
        else:
            odd[name] = value
    if key:
        if _PLAIN_VALUE.fullmatch(key):
            headers[KEY] = key
        else:
            headers[ODD_KEY] = json.dumps(key)
    if odd:
        headers[ODD] = json.dumps(odd)  # in ASCII, and on one line
    return headers


def _is_plain(name: str) -> bool:
    if not _PLAIN_NAME.fullmatch(name):
        return False
    if len(_plain_names) < 10_000:
        _plain_names.add(name)
    return True


def from_headers(headers: dict[str, str] | None) -> tuple[dict[str, str], str]:
    """Attributes and key; also of messages that others published."""
    if not headers:
        return {}, ""
    attributes = {name: value for name, value in headers.items() if not name.startswith(("Nats-", "Slipstream-"))}
    key = headers.get(KEY, "")
    # What others have put there is no reason to lose the message, or to have it come again for ever.
    with contextlib.suppress(msgspec.DecodeError):
        if ODD in headers:
            attributes.update(_decode(headers[ODD]))
        if ODD_KEY in headers:
            key = msgspec.json.decode(headers[ODD_KEY], type=str)
    return attributes, key
