"""The forms of bodies and answers: those nobody reads are refused before anything is done."""

from __future__ import annotations

import gzip
import re

import msgspec
import pytest

from slipstream.server.v2.endpoint import Endpoint
from slipstream.server.v2.endpoints import COLD, HOT
from tests.server.v2.wire import MSGPACK, V2

WITH_BODY = [endpoint for endpoint in (*HOT, *COLD) if endpoint.body is not None]


def path(endpoint: Endpoint, topic: str) -> str:
    return re.sub(r"{\w+}", "g", endpoint.path.replace("{topic}", topic))


@pytest.mark.parametrize("endpoint", WITH_BODY, ids=lambda endpoint: f"{endpoint.method} {endpoint.path}")
def test_a_compressed_body_is_415_and_told_to_come_uncompressed(v2: V2, endpoint: Endpoint) -> None:
    """It was "not JSON", which nobody understands whose library compresses by itself."""
    for _ in range(2):  # the second time the head is known byte for byte
        response = v2.respond(
            endpoint.method, path(endpoint, v2.topic), gzip.compress(b"{}"), headers={"Content-Encoding": "gzip"}
        )
        assert response.status_code == 415
        answer = response.json()
        assert answer["error"] == "UNSUPPORTED_MEDIA_TYPE"
        assert "uncompressed" in answer["message"]
        assert "gzip" in answer["message"]


def test_a_compressed_messagepack_body_is_refused_in_messagepack(v2: V2) -> None:
    body = gzip.compress(msgspec.msgpack.encode({"topic": v2.topic, "messages": [{"value": b"v"}]}))
    response = v2.respond(
        "POST", "/v2/produce", body, headers={"Content-Type": MSGPACK, "Content-Encoding": "Deflate, GZIP"}
    )
    assert response.status_code == 415
    assert "uncompressed" in msgspec.msgpack.decode(response.content)["message"]
    assert v2.read()["messages"] == []


@pytest.mark.parametrize("encoding", ["identity", "Identity", ""])
def test_a_body_that_says_it_is_not_compressed_is_taken(v2: V2, encoding: str) -> None:
    body = {"topic": v2.topic, "messages": [{"value": "v"}]}
    v2.call("POST", "/v2/produce", body, headers={"Content-Encoding": encoding})
    v2.call("PATCH", v2.path(), {}, headers={"Content-Encoding": encoding})
