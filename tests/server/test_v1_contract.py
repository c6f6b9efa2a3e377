"""What holds for every path of `/v1`: methods, error shapes, bodies and queries, request ids."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server_process import ServerProcess

ALLOWED = {
    "/v1/healthz": "GET",
    "/v1/version": "GET",
    "/v1/topics": "GET, POST",
    "/v1/produce": "POST",
    "/v1/consume": "GET",
    "/v1/ack": "POST",
    "/v1/nack": "POST",
}

METHODS = ["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"]

WRONG = [(path, method) for path, allowed in ALLOWED.items() for method in METHODS if method not in allowed.split(", ")]


def assert_error(response: httpx.Response, status: int, code: str) -> str:
    """The common error shape; returns the message."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    body = response.json()
    assert body["error"] == code
    assert isinstance(body["message"], str)
    assert body["message"]
    return str(body["message"])


@pytest.mark.parametrize(("path", "method"), WRONG)
def test_a_wrong_method_is_405_and_says_what_is_allowed(shared: ServerProcess, path: str, method: str) -> None:
    """Ruling 14."""
    response = shared.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == ALLOWED[path]
    assert response.headers["content-type"] == "application/json; charset=utf-8"
    if method == "HEAD":
        assert response.content == b""
        assert int(response.headers["content-length"]) > 0
    else:
        assert_error(response, 405, "METHOD_NOT_ALLOWED")


def test_a_wrong_method_leaves_the_connection_usable(shared: ServerProcess) -> None:
    both = (
        b"HEAD /v1/produce HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )
    received = shared.raw(both, finish=False)
    assert received.startswith(b"HTTP/1.1 405")
    assert received.endswith(b'{"status":"ok"}\n')
    assert received.count(b"HTTP/1.1 ") == 2


@pytest.mark.parametrize(
    "path",
    ["/produce", "/consume", "/topics", "/healthz", "/v1", "/v1/", "/v1/nothing", "/v1/produce/", "/v3/produce"],
)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "OPTIONS"])
def test_unversioned_and_unknown_paths_are_404_in_json(shared: ServerProcess, path: str, method: str) -> None:
    """Ruling 14."""
    message = assert_error(shared.request(method, path), 404, "NOT_FOUND")
    assert "/v1" in message


def test_a_wrong_method_on_metrics_is_405(shared: ServerProcess) -> None:
    response = shared.request("POST", "/metrics")
    assert_error(response, 405, "METHOD_NOT_ALLOWED")
    assert "GET" in response.headers["allow"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/healthz", 200),
        ("GET", "/v1/topics", 200),
        ("POST", "/v1/produce", 400),
        ("DELETE", "/v1/produce", 405),
        ("GET", "/v1/consume", 400),
        ("POST", "/v1/ack", 400),
        ("GET", "/metrics", 200),
        ("GET", "/nothing", 404),
        ("PUT", "/metrics", 405),
    ],
)
def test_a_request_id_comes_back(shared: ServerProcess, method: str, path: str, status: int) -> None:
    for request_id in ("one", "two"):
        response = shared.request(method, path, headers={"X-Request-Id": request_id})
        assert (response.status_code, response.headers.get_list("x-request-id")) == (status, [request_id])
    assert "x-request-id" not in shared.request(method, path).headers


def test_a_request_id_comes_back_with_204_and_on_a_stream(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    query = {"topic": topic, "group": "g", "owner": "o"}
    headers = {"X-Request-Id": "stream"}
    with shared.client.stream("GET", shared.base + "/v1/consume", params=query, headers=headers) as response:
        assert response.headers["x-request-id"] == "stream"
    body = {"topic": topic, "group": "g", "owner": "o", "partition": 0, "offset": 0}
    response = shared.post("/v1/ack", body, headers={"X-Request-Id": "ack"})
    assert (response.status_code, response.headers["x-request-id"]) == (204, "ack")
    assert response.content == b""


BODIES: dict[str, dict[str, Any]] = {
    "/v1/topics": {"name": "any"},
    "/v1/produce": {"topic": "any", "value": "v"},
    "/v1/ack": {"topic": "any", "group": "g", "owner": "o", "partition": 0, "offset": 0},
    "/v1/nack": {"topic": "any", "group": "g", "owner": "o", "partition": 0, "offset": 0, "reason": "r"},
    "/v1/consume": {"topic": "any", "group": "g", "owner": "o", "lease_ms": 1000},
}


def send(server: ServerProcess, path: str, content: bytes, query: dict[str, Any] | None = None) -> httpx.Response:
    method = "GET" if path == "/v1/consume" else "POST"
    return server.request(method, path, content=content, params=query)


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"{}}",
        b"[]",
        b"null",
        b"7",
        b'"text"',
        b" ",
        b'{"unknown": 1}',
        b'{"topic": "a", "topic_": "b"}',
        b'{"topic": 7, "name": 7}',
        b'{"topic": ["a"], "name": {}}',
        b"topic=a&value=b",
        b"\xff\xfe",
        b'{"topic": "\xff", "name": "\xff"}',
        b'{"topic": "\\ud800", "name": "\\ud800"}',
    ],
)
def test_a_body_that_is_not_what_is_wanted_is_400(shared: ServerProcess, path: str, content: bytes) -> None:
    """Ruling 14: unknown fields, wrong types and broken JSON alike. Good query parameters do not save it."""
    query = dict(BODIES[path])
    assert_error(send(shared, path, content, query), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", BODIES)
def test_one_unknown_field_in_a_good_body_is_400_and_named(shared: ServerProcess, path: str) -> None:
    """Ruling 14. The body is good but for that field, so nothing else can be what is refused."""
    content = json.dumps({**BODIES[path], "surprise": 1}).encode()
    assert "surprise" in assert_error(send(shared, path, content), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("envelope", [{"surprise": 1}, {"retry_policy": {"max_attempts": 2, "surprise": 1}}])
def test_an_unknown_field_is_400_inside_the_envelope_too(shared: ServerProcess, envelope: dict[str, object]) -> None:
    """Ruling 14."""
    content = json.dumps({**BODIES["/v1/produce"], "envelope": envelope}).encode()
    assert "surprise" in assert_error(send(shared, "/v1/produce", content), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", BODIES)
def test_anything_after_the_json_is_400(shared: ServerProcess, path: str) -> None:
    message = assert_error(send(shared, path, json.dumps(BODIES[path]).encode() + b" x"), 400, "INVALID_ARGUMENT")
    assert "JSON" in message


@pytest.mark.parametrize("path", BODIES)
def test_every_field_may_be_null(shared: ServerProcess, path: str) -> None:
    """Null is absent, so what is missing then is what the message is about, not the null."""
    content = json.dumps(dict.fromkeys(BODIES[path])).encode()
    assert "required" in assert_error(send(shared, path, content), 400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("path", ["/v1/produce", "/v1/ack", "/v1/nack", "/v1/consume"])
def test_an_unknown_topic_is_400(shared: ServerProcess, path: str) -> None:
    content = json.dumps(BODIES[path] | {"topic": "nowhere"}).encode()
    message = assert_error(send(shared, path, content), 400, "INVALID_ARGUMENT")
    assert message.startswith("topic does not exist")


def test_a_form_content_type_does_not_matter(shared: ServerProcess, topic: str) -> None:
    """curl -d sends JSON as a form; DriftQ never looks."""
    response = shared.post(
        "/v1/produce", {"topic": topic, "value": "v"}, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert response.status_code == 200


def test_field_names_may_be_in_any_case(shared: ServerProcess, topic: str) -> None:
    """Ruling 14: Go writes the names of a struct as they are, and DriftQ reads them."""
    envelope = {"RunID": "no", "Run_ID": "r", "Retry_Policy": {"Max_Attempts": 3}}
    refused = shared.post("/v1/produce", {"Topic": topic, "Value": "v", "Envelope": envelope})
    assert "RunID" in assert_error(refused, 400, "INVALID_ARGUMENT")
    del envelope["RunID"]
    assert shared.post("/v1/produce", {"Topic": topic, "VALUE": "v", "Envelope": envelope}).status_code == 200
    item = shared.take(topic)[0]
    assert (item["envelope"]["run_id"], item["envelope"]["retry_policy"]["max_attempts"]) == ("r", 3)
    place = {"Partition": item["partition"], "Offset": item["offset"]}
    assert shared.post("/v1/ack", {"Topic": topic, "Group": "g", "Owner": "o", **place}).status_code == 204


def test_half_a_surrogate_pair_is_named(shared: ServerProcess, topic: str) -> None:
    refused = shared.post("/v1/produce", b'{"topic": "%b", "value": "\\ud800"}' % topic.encode())
    assert "surrogate" in assert_error(refused, 400, "INVALID_ARGUMENT")
