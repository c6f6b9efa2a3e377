"""Request targets, Host, framing and methods, as RFC 9112 asks of a server; and bodies that are refused."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request

import pytest

from tests.server.test_hostile_input import LAST, produce, request, statuses
from tests.server_process import ServerProcess


def send(server: ServerProcess, *lines: str, body: bytes = b"") -> bytes:
    """Send a request of these lines with a good one behind it; return all that is answered."""
    return server.raw("\r\n".join(lines).encode() + b"\r\n\r\n" + body + LAST, finish=False)


@pytest.mark.parametrize("target", ["http://any.example:1/v1/healthz", "HTTPS://any.example/v1/healthz"])
def test_an_absolute_target_is_answered_like_its_path(shared: ServerProcess, target: str) -> None:
    received = send(shared, f"GET {target} HTTP/1.1", "Host: any.example")
    assert statuses(received) == [200, 200]
    assert received.count(b'{"status":"ok"}') == 2


def test_an_absolute_target_reaches_the_application_with_its_query(shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "v")
    received = send(shared, f"GET http://x/v2/topics/{topic}/messages?limit=1 HTTP/1.1", "Host: x")
    assert statuses(received) == [200, 200]
    assert b'"value":"v"' in received
    assert statuses(send(shared, "GET http://x HTTP/1.1", "Host: x")) == [200, 200]
    assert statuses(send(shared, "GET http://x/nothing HTTP/1.1", "Host: x")) == [404, 200]


def test_the_host_of_an_absolute_target_is_the_one_a_page_must_come_from(shared: ServerProcess, topic: str) -> None:
    """RFC 9112, 3.2.2: it wins over Host."""
    line = f"POST http://us/v1/produce?topic={topic}&value=v HTTP/1.1"
    assert statuses(send(shared, line, "Host: them", "Origin: http://us")) == [200, 200]
    assert statuses(send(shared, line, "Host: them", "Origin: http://them")) == [403]


@pytest.mark.parametrize("path", ["/v1/healthz", "/metrics"])
@pytest.mark.parametrize("hosts", [[], ["Host: a", "Host: a"], ["Host: a/b"], ["Host: a b"], ["Host: u@a"]], ids=str)
def test_a_host_that_is_missing_doubled_or_malformed_is_400(shared: ServerProcess, path: str, hosts: list[str]) -> None:
    received = send(shared, f"GET {path} HTTP/1.1", *hosts)
    assert statuses(received) == [400]
    assert b"Host" in received


@pytest.mark.parametrize("host", ["a", "a.example:80", "127.0.0.1:8080", "[::1]:8080", "", "under_score"])
def test_any_one_host_is_taken(shared: ServerProcess, host: str) -> None:
    assert statuses(send(shared, "GET /v1/healthz HTTP/1.1", f"Host: {host}")) == [200, 200]


@pytest.mark.parametrize(
    ("version", "codings", "status"),
    [
        ("1.1", ["gzip, chunked"], 501),
        ("1.1", ["gzip", "chunked"], 501),
        ("1.1", ["chunked, chunked"], 400),
        ("1.1", ["chunked", "chunked"], 400),
        ("1.0", ["chunked"], 400),
    ],
)
def test_a_transfer_coding_that_is_not_understood_is_refused(
    shared: ServerProcess, topic: str, version: str, codings: list[str], status: int
) -> None:
    body = json.dumps({"topic": topic, "value": "v"}).encode()
    chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    lines = [f"POST /v1/produce HTTP/{version}", "Host: x", *(f"Transfer-Encoding: {coding}" for coding in codings)]
    assert statuses(send(shared, *lines, body=chunks)) == [status]
    assert shared.get(f"/v2/topics/{topic}/messages").json()["messages"] == []


def test_an_expectation_that_is_not_met_is_417(shared: ServerProcess) -> None:
    assert statuses(shared.raw(request("POST", "/v1/produce", b"{}", "Expect: 200-maybe"), finish=False)) == [417]


@pytest.mark.parametrize(
    ("path", "allow"),
    [
        ("/v1/produce", "POST"),
        ("/v1/topics", "GET, POST"),
        ("/v2/fetch", "POST"),
        ("/v2/topics/any", "DELETE, GET, HEAD, PATCH"),
        ("/metrics", "GET, HEAD"),
        ("/console/", "GET, HEAD"),
        ("http://x/v1/ack", "POST"),
    ],
)
@pytest.mark.parametrize("method", ["FOO", "get", "X-1"])
def test_an_unknown_method_is_405_and_says_what_is_allowed(
    shared: ServerProcess, method: str, path: str, allow: str
) -> None:
    received = shared.raw(request(method, path, b"body") + LAST, finish=False)
    assert statuses(received) == [405]
    head, _, body = received.partition(b"\r\n\r\n")
    assert f"\r\nAllow: {allow}\r\n".encode() in head
    assert json.loads(body)["error"] == "METHOD_NOT_ALLOWED"


def test_an_unknown_method_on_an_unknown_path_is_404(shared: ServerProcess) -> None:
    assert statuses(shared.raw(request("FOO", "/nothing"), finish=False)) == [404]


def test_an_unknown_method_behind_another_request_does_not_cost_its_answer(shared: ServerProcess, topic: str) -> None:
    received = shared.raw(produce(topic, "v") + request("FOO", "/v1/healthz"), finish=False)
    assert statuses(received)[0] == 200
    assert statuses(received)[1:] in ([400], [405])


@pytest.mark.parametrize("path", ["/v1/produce", "/v2/produce", "/nothing"])
@pytest.mark.parametrize("mebibytes", [8, 20, 100])
def test_a_client_that_reads_nothing_before_it_has_sent_all_gets_the_413(
    shared: ServerProcess, path: str, mebibytes: int
) -> None:
    if (path, mebibytes) == ("/v2/produce", 8):
        mebibytes = 17  # less is a batch of allowed size
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=30)
    connection.request("POST", path, b"x" * (mebibytes << 20))
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error"]) == (413, "PAYLOAD_TOO_LARGE")
    connection.close()


def test_urllib_gets_the_413(shared: ServerProcess) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(shared.base + "/v1/produce", b"x" * (8 << 20), timeout=30)
    assert refused.value.code == 413
    refused.value.close()
