"""Payloads that are not text, on a wire that is (ruling 16)."""

from __future__ import annotations

import base64
from pathlib import Path

from tests.conftest import StartServer
from tests.store.node import Node


def test_what_is_not_utf8_is_shown_in_base64_and_said_to_be(start_server: StartServer, tmp_path: Path) -> None:
    """Ruling 16. `/v1` cannot send such bytes, so they are stored by a broker in this process."""
    data = tmp_path / "data"
    with Node(data) as node:
        node.create("t")
        node.produce("t", b"\xff\x00 not text", key=b"key")
        node.produce("t", "Grüße".encode(), key=b"\xfe")
    server = start_server(data=data)
    with server.consume("t") as items:
        first, second = next(items), next(items)
    assert base64.b64decode(first["value"]) == b"\xff\x00 not text"
    assert (first["encoding"], first["key"], "key_encoding" in first) == ("base64", "key", False)
    assert (second["value"], "encoding" in second) == ("Grüße", False)
    assert (base64.b64decode(second["key"]), second["key_encoding"]) == (b"\xfe", "base64")
