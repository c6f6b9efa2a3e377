"""What no honest client sends: the right 4xx or a closed connection, and everybody else is served on."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server_process import ServerProcess


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def produce(topic: str, value: str, *headers: str) -> bytes:
    return request("POST", "/v1/produce", json.dumps({"topic": topic, "value": value}).encode(), *headers)


HEALTH = request("GET", "/v1/healthz")
LAST = request("GET", "/v1/healthz", b"", "Connection: close")


def statuses(received: bytes) -> list[int]:
    """The status codes of a run of answers whose bodies have no such line in them."""
    return [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]


@pytest.fixture
def hardened(shared: ServerProcess) -> Iterator[ServerProcess]:
    """The shared server, which must be well after each of these tests."""
    yield shared
    assert shared.is_well()


CHUNKED = "Transfer-Encoding: chunked"


SIMPLE = b'{"topic":"t","name":"t","value":"x","messages":[]}'
"""What a page may send to anybody without asking first: it is text to the browser."""


@pytest.mark.parametrize("path", ["/v1/produce", "/v2/produce", "/v1/topics", "/v2/topics", "/v2/job-replays"])
@pytest.mark.parametrize("header", ["Origin: http://elsewhere", "Origin: null", "Sec-Fetch-Site: cross-site"])
def test_a_web_page_of_somebody_else_changes_nothing(hardened: ServerProcess, path: str, header: str) -> None:
    received = hardened.raw(request("POST", path, SIMPLE, "Content-Type: text/plain", "X-Request-Id: r-1", header))
    assert statuses(received) == [403]
    assert b"a page of another origin" in received
    assert b"r-1" in received


def test_a_web_page_of_somebody_else_takes_no_messages(hardened: ServerProcess, topic: str) -> None:
    path = f"/v1/consume?topic={topic}&group=g"
    received = hardened.raw(request("GET", path, b"", "Sec-Fetch-Site: cross-site", "X-Request-Id: r-1"))
    assert statuses(received) == [403]
    assert b"r-1" in received
    reading = request("GET", "/v1/topics", b"", "Sec-Fetch-Site: cross-site", "Connection: close")
    assert statuses(hardened.raw(reading)) == [200]


def test_our_own_page_is_answered_also_behind_a_proxy(hardened: ServerProcess, topic: str) -> None:
    from_here = produce(topic, "x", "Origin: http://x")
    behind_a_proxy = produce(topic, "x", "Origin: https://10.0.0.5:8443", "Sec-Fetch-Site: same-origin")
    assert statuses(hardened.raw(from_here + behind_a_proxy + LAST)) == [200, 200, 200]


@pytest.mark.parametrize("path", ["/v1/produce", "/nothing"])
def test_a_body_announced_too_large_is_413_before_it_is_sent(hardened: ServerProcess, path: str) -> None:
    received = hardened.raw(
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {2 << 20}\r\n\r\n".encode(), finish=False
    )
    assert statuses(received) == [413]
    assert b'"error":"PAYLOAD_TOO_LARGE"' in received
    assert b"Connection: close" in received


def test_a_body_sent_too_large_is_413_even_while_it_is_still_being_sent(hardened: ServerProcess) -> None:
    body = b"x" * (2 << 20)
    assert statuses(hardened.raw(request("POST", "/v1/produce", body), finish=False)) == [413]


@pytest.mark.parametrize("path", ["/v1/produce", "/v1/consume", "/nothing"])
def test_a_chunked_body_without_end_is_cut_off(hardened: ServerProcess, path: str) -> None:
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    received = hardened.raw(request("POST", path, b"", CHUNKED) + chunk * 20, finish=False)
    assert statuses(received) in ([413], [404])  # the application may answer before the body is through


def test_a_chunked_body_of_the_allowed_size_is_taken_whatever_its_chunks(hardened: ServerProcess, topic: str) -> None:
    body = json.dumps({"topic": topic, "value": "x" * 100_000}).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    received = hardened.raw(request("POST", "/v1/produce", b"", CHUNKED, "Connection: close") + chunks, finish=False)
    assert statuses(received) == [200]
    assert hardened.take(topic)[0]["value"] == "x" * 100_000


def test_a_body_of_exactly_the_limit_is_taken(hardened: ServerProcess, topic: str) -> None:
    empty = len(json.dumps({"topic": topic, "value": ""}))
    body = json.dumps({"topic": topic, "value": "x" * ((1 << 20) - empty)}).encode()
    assert len(body) == 1 << 20
    assert hardened.post("/v1/produce", body).status_code == 200
    assert hardened.post("/v1/produce", body + b" ").status_code == 413


@pytest.mark.parametrize("path", ["/v1/produce?x=", "/nothing?x="])
def test_a_line_too_long_is_414(hardened: ServerProcess, path: str) -> None:
    received = hardened.raw(request("GET", path + "x" * 70_000), finish=False)
    assert statuses(received) == [414]


@pytest.mark.parametrize(
    "headers",
    [
        [f"X-{number}: v" for number in range(101)],
        ["X-Large: " + "v" * 70_000],
        [f"X-{number}: " + "v" * 1_000 for number in range(70)],
    ],
    ids=["many", "one large", "large in all"],
)
@pytest.mark.parametrize("path", ["/v1/produce", "/nothing"])
def test_too_many_or_too_large_headers_are_431(hardened: ServerProcess, path: str, headers: list[str]) -> None:
    assert statuses(hardened.raw(request("GET", path, b"", *headers), finish=False)) == [431]


@pytest.mark.parametrize("start", [b"X-Endless: ", b"", b"X-"], ids=["value", "many", "name"])
def test_headers_without_end_are_cut_off(hardened: ServerProcess, start: bytes) -> None:
    """They never complete, so only what arrives can be counted."""
    piece = b"a: b\r\n" * 11_000 if not start else b"v" * 65_536
    received = hardened.raw(b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\n" + start + piece * 10, finish=False)
    assert statuses(received) == [431]


@pytest.mark.parametrize("trailers", [b"X-T: " + b"v" * 70_000, b"X-T: v\r\n" * 9_000], ids=["one large", "many"])
def test_trailers_are_bounded_like_headers(hardened: ServerProcess, trailers: bytes) -> None:
    received = hardened.raw(
        request("POST", "/v1/produce", b"", CHUNKED) + b"2\r\n{}\r\n0\r\n" + trailers + b"\r\n\r\n", finish=False
    )
    assert statuses(received) == [431]


def test_a_trailer_is_no_header(hardened: ServerProcess) -> None:
    chunks = b"0\r\nX-Request-Id: smuggled\r\n\r\n"
    for path in ("/v1/produce", "/nothing"):
        received = hardened.raw(request("POST", path, b"", CHUNKED) + chunks + LAST, finish=False)
        assert statuses(received)[1:] == [200]
        assert b"smuggled" not in received


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"topic":' * 100_000,
        b'{"topic": "t", "value": "v", "envelope": {"labels": ' + b'{"a":' * 50_000,
        b'{"envelope": {"retry_policy": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}",
    ],
)
def test_deep_json_is_400(hardened: ServerProcess, content: bytes) -> None:
    response = hardened.post("/v1/produce", content)
    assert (response.status_code, response.json()["error"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize(
    "content",
    [
        b'{"topic": "TOPIC", "value": "\xff"}',
        b'{"topic": "TOPIC", "value": "\xed\xa0\x80"}',
        b'{"topic": "TOPIC", "value": "\\ud800"}',
        b'{"topic": "TOPIC", "value": "\\udc00\\ud800"}',
        b'{"topic": "TOPIC", "value": "v", "key": "\\ud800x"}',
        b'{"topic": "TOPIC", "value": "v", "envelope": {"run_id": "\\udfff"}}',
        b'{"topic": "TOPIC", "value": "\x00"}',
    ],
)
def test_text_that_is_not_unicode_is_400(hardened: ServerProcess, topic: str, content: bytes) -> None:
    response = hardened.post("/v1/produce", content.replace(b"TOPIC", topic.encode()))
    assert (response.status_code, response.json()["error"]) == (400, "INVALID_ARGUMENT")


@pytest.mark.parametrize("value", ["%FF", "%ED%A0%80", "%C3"])
def test_a_query_that_is_not_utf_8_is_400(hardened: ServerProcess, topic: str, value: str) -> None:
    received = hardened.raw(request("POST", f"/v1/produce?topic={topic}&value={value}") + LAST, finish=False)
    assert statuses(received) == [400, 200]


def test_raw_bytes_in_a_request_line_are_400(hardened: ServerProcess, topic: str) -> None:
    line = b"POST /v1/produce?topic=" + topic.encode() + b"&value=\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n"
    assert statuses(hardened.raw(line + LAST))[0] == 400


def test_any_unicode_text_comes_through(hardened: ServerProcess, topic: str) -> None:
    value = 'é \u0000 \U0001f600 \u2028\u2029\x85 \\ " \x7f'
    assert hardened.produce(topic, value, key="ключ").status_code == 200
    assert hardened.post("/v1/produce", params={"topic": topic, "value": value, "key": "ключ"}).status_code == 200
    assert [(item["key"], item["value"]) for item in hardened.take(topic, 2)] == [("ключ", value)] * 2


POST = b"POST /v1/produce HTTP/1.1\r\nHost: x\r\n"

NOT_HTTP = {
    "length and chunked": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "two lengths": POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a list of lengths": POST + b"Content-Length: 2, 3\r\n\r\n{} ",
    "negative length": POST + b"Content-Length: -1\r\n\r\n",
    "signed length": POST + b"Content-Length: +2\r\n\r\n{}",
    "hex length": POST + b"Content-Length: 0x2\r\n\r\n{}",
    "empty length": POST + b"Content-Length: \r\n\r\n",
    "overflowing length": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "chunked not last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "unknown coding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "bad chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
    "overflowing chunk": POST + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
    "space before colon": POST + b"Content-Length : 2\r\n\r\n{}",
    "bare line feed in a header": b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\nX: a\nContent-Length: 5\r\n\r\n",
    "null in a header": b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
    "folded header": b"GET /v1/healthz HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n: c\r\n\r\n",
    "no version": b"GET /v1/healthz\r\n\r\n",
    "version of the future": b"GET /v1/healthz HTTP/9.9\r\n\r\n",
    "half a request line": b"BREW /v1/healthz",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 60,
    "HTTP/2 by surprise": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "noise": bytes(range(256)),
    "CONNECT": b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n",
}


@pytest.mark.parametrize("data", NOT_HTTP.values(), ids=NOT_HTTP)
def test_what_is_not_http_is_400_and_the_end_of_the_connection(hardened: ServerProcess, data: bytes) -> None:
    """The health request behind it is the smuggled one: it must not be answered."""
    received = hardened.raw(data + HEALTH, finish=False)
    assert statuses(received) in ([400], [404], [501])
    assert b"Connection: close" in received or b"connection: close" in received


def test_a_star_is_no_path(hardened: ServerProcess) -> None:
    received = hardened.raw(request("OPTIONS", "*") + LAST, finish=False)
    assert statuses(received) == [404, 200]
    assert b"the request target '*' is not a path; use /v1/* endpoints" in received


def test_the_body_of_an_offer_to_upgrade_is_not_taken_for_a_request(hardened: ServerProcess, topic: str) -> None:
    for path in ("/v1/healthz", "/metrics"):
        body = produce(topic, "smuggled")
        data = request("GET", path, body, "Connection: Upgrade", "Upgrade: websocket")
        assert statuses(hardened.raw(data + LAST, finish=False)) == [200, 200]
    hardened.produce(topic, "honest")
    assert hardened.take(topic)[0]["value"] == "honest"


@pytest.mark.parametrize("first", [HEALTH, request("GET", "/metrics"), request("GET", "/nothing")])
def test_garbage_after_a_valid_request_does_not_cost_its_answer(hardened: ServerProcess, first: bytes) -> None:
    received = hardened.raw(first + b"\x00garbage\r\n\r\n", finish=False)
    assert statuses(received) in ([200, 400], [404, 400])


def test_pipelined_requests_are_answered_in_order_hot_and_cold_mixed(hardened: ServerProcess, topic: str) -> None:
    kinds = [
        (produce(topic, "1"), 200, b'"produced"'),
        (request("GET", "/metrics"), 200, b"inflight_messages"),
        (produce(topic, "2"), 200, b'"produced"'),
        (request("GET", "/nothing"), 404, b"NOT_FOUND"),
        (request("GET", "/metrics"), 200, b"inflight_messages"),
        (HEALTH, 200, b'"ok"'),
        (produce("nowhere", "3"), 400, b"INVALID_ARGUMENT"),
        (request("GET", "/nothing"), 404, b"NOT_FOUND"),
        (produce(topic, "4"), 200, b'"produced"'),
    ] * 5
    received = hardened.raw(b"".join(data for data, _, _ in kinds) + LAST, finish=False)
    answers = received.split(b"HTTP/1.1 ")[1:]
    assert len(answers) == len(kinds) + 1
    for number, (answer, (_, status, mark)) in enumerate(zip(answers, kinds, strict=False)):
        assert answer.startswith(str(status).encode()), f"answer {number} is {answer[:60]!r}, not {status}"
        assert mark in answer, f"answer {number} is {answer[:200]!r}, not one with {mark!r}"
    assert [item["value"] for item in hardened.take(topic, 15)] == ["1", "2", "4"] * 5


def test_more_pipelined_requests_than_may_be_under_way_are_all_answered(start_memory: StartMemory) -> None:
    server = start_memory(max_pipelined=3)
    server.create("t")
    received = server.raw(b"".join(produce("t", str(number)) for number in range(200)) + LAST, finish=False)
    assert statuses(received) == [200] * 201
    assert [item["value"] for item in server.take("t", 200)] == [str(number) for number in range(200)]


def test_requests_sent_byte_by_byte_are_understood(hardened: ServerProcess, topic: str) -> None:
    with hardened.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in produce(topic, "slow") + LAST:
            connection.sendall(bytes([byte]))
        received = b""
        while data := connection.recv(65536):
            received += data
    assert statuses(received) == [200, 200]


def test_nothing_after_connection_close_is_carried_out(hardened: ServerProcess, topic: str) -> None:
    data = produce(topic, "first", "Connection: close") + produce(topic, "second")
    assert statuses(hardened.raw(data, finish=False)) == [200]
    hardened.produce(topic, "third")
    assert [item["value"] for item in hardened.take(topic, 2)] == ["first", "third"]


def test_who_has_finished_sending_still_gets_the_answers(hardened: ServerProcess, topic: str) -> None:
    assert statuses(hardened.raw(produce(topic, "1") + produce(topic, "2"), finish=True)) == [200, 200]
    assert statuses(hardened.raw(request("GET", "/metrics"), finish=True)) == [200]


def test_an_offer_to_upgrade_is_ignored(hardened: ServerProcess, topic: str) -> None:
    """Java's HTTP client offers h2c with every first request."""
    offer = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk")
    data = (
        request("GET", "/v1/healthz", b"", *offer)
        + produce(topic, "v", *offer)
        + request("GET", "/metrics", b"", *offer)
    )
    assert statuses(hardened.raw(data + data + LAST, finish=False)) == [200] * 7
    assert len(hardened.take(topic, 2)) == 2


def test_thousands_of_offers_to_upgrade_at_once_are_ignored(hardened: ServerProcess) -> None:
    offer = request("GET", "/v1/healthz", b"", "Connection: upgrade", "Upgrade: x")
    assert statuses(hardened.raw(offer * 5_000 + LAST, finish=False)) == [200] * 5_001


def test_http_1_0_is_answered_and_closed(hardened: ServerProcess, topic: str) -> None:
    received = hardened.raw(b"GET /v1/healthz HTTP/1.0\r\n\r\n", finish=False)
    assert statuses(received) == [200]
    assert received.endswith(b'{"status":"ok"}\n')
    body = json.dumps({"topic": topic, "value": "v"}).encode()
    head = f"POST /v1/produce HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    assert statuses(hardened.raw(head + body, finish=False)) == [200]
    assert statuses(hardened.raw(b"GET /metrics HTTP/1.0\r\n\r\n", finish=False)) == [200]


def test_a_stream_over_http_1_0_is_not_chunked(hardened: ServerProcess, topic: str) -> None:
    hardened.produce(topic, "v")
    with hardened.connect() as connection, connection.makefile("rb") as lines:
        connection.sendall(f"GET /v1/consume?topic={topic}&group=g&owner=o HTTP/1.0\r\n\r\n".encode())
        head = list(iter(lines.readline, b"\r\n"))
        assert head[0].startswith(b"HTTP/1.1 200")
        assert not any(line.lower().startswith(b"transfer-encoding") for line in head)
        assert json.loads(lines.readline())["value"] == "v"


@pytest.mark.parametrize("path", ["/v1/produce", "/nothing"])
def test_who_expects_100_continue_is_told_to_go_on(hardened: ServerProcess, topic: str, path: str) -> None:
    body = json.dumps({"topic": topic, "value": "v"}).encode()
    with hardened.connect() as connection:
        head = request("POST", path, b"", f"Content-Length: {len(body)}", "Expect: 100-continue", "Connection: close")
        connection.sendall(head)
        first = connection.recv(65536)
        if path == "/nothing":
            assert first.startswith(b"HTTP/1.1 404")
            return
        assert first == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")


def test_who_expects_100_continue_for_too_much_is_refused_at_once(hardened: ServerProcess) -> None:
    head = request("POST", "/v1/produce", b"", f"Content-Length: {2 << 20}", "Expect: 100-continue")
    assert statuses(hardened.raw(head, finish=False)) == [413]


def test_a_stream_waits_for_the_answers_before_it(hardened: ServerProcess, topic: str) -> None:
    consume = request("GET", f"/v1/consume?topic={topic}&group=g&owner=o")
    for before in (produce(topic, "v"), request("GET", "/metrics")):
        with hardened.connect() as connection:
            connection.sendall(before + consume)
            received = b""
            while b"application/x-ndjson" not in received:
                received += connection.recv(65536)
        assert statuses(received) == [200, 200]
        assert b"application/x-ndjson" in received.split(b"HTTP/1.1 ")[2]


def test_what_is_sent_on_a_stream_ends_it(hardened: ServerProcess, topic: str) -> None:
    consume = request("GET", f"/v1/consume?topic={topic}&group=g&owner=o")
    with hardened.connect() as connection:
        connection.sendall(consume)
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(produce(topic, "never"))
        received = _rest(connection)
    together = hardened.raw(consume + produce(topic, "never"), finish=False)
    assert b"HTTP/1.1" not in received
    assert len(statuses(together)) <= 1
    hardened.produce(topic, "v")
    assert hardened.take(topic)[0]["value"] == "v"


def test_a_refused_stream_leaves_the_connection_usable(hardened: ServerProcess) -> None:
    consume = request("GET", "/v1/consume?topic=nowhere&group=g&owner=o")
    assert statuses(hardened.raw(consume + consume + LAST, finish=False)) == [400, 400, 200]


def _rest(connection: socket.socket) -> bytes:
    received = b""
    try:
        while data := connection.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def test_a_connection_reset_in_the_middle_of_everything_harms_nobody(hardened: ServerProcess, topic: str) -> None:
    for data in (produce(topic, "v")[:-3], produce(topic, "v") * 50, request("GET", "/metrics") * 20, b"GET /v1/he"):
        connection = hardened.connect()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(data)
        connection.close()
    assert hardened.is_well()


# Too slow, too idle, too many


def test_a_slow_sender_is_cut_off_with_408(start_memory: StartMemory) -> None:
    server = start_memory(receive_timeout_ms=1000)
    begun = [b"POST /v1/produce HTT", produce("t", "v")[:-1], request("POST", "/nothing", b"xx")[:-1]]
    with ThreadPoolExecutor() as threads:
        received = list(threads.map(lambda start: server.raw(start, finish=False), begun))
    assert [statuses(each) for each in received] == [[408], [408], [404]]
    assert server.is_well()


def test_an_idle_connection_is_closed(start_memory: StartMemory) -> None:
    server = start_memory(idle_timeout_ms=1000)
    with ThreadPoolExecutor() as threads:
        silent = threads.submit(server.raw, b"", finish=False)
        asked = server.raw(HEALTH + request("GET", "/metrics"), finish=False)
    assert (silent.result(), statuses(asked)) == (b"", [200, 200])


def test_a_quiet_stream_is_not_idle(start_memory: StartMemory) -> None:
    server = start_memory(idle_timeout_ms=1000, receive_timeout_ms=1000, stall_timeout_ms=1000)
    server.create("t")
    with server.consume("t") as items:
        assert server.raw(b"", finish=False, timeout=30) == b""  # three sweeps have passed when this is closed
        assert server.raw(b"", finish=False, timeout=30) == b""
        server.produce("t", "v")
        assert next(items)["value"] == "v"


def test_a_stream_that_is_not_read_is_dropped_and_its_messages_go_to_another(start_server: StartServer) -> None:
    server = start_server("--stall-timeout-ms", "1000")
    server.create("t")
    large = "x" * 1_000_000
    for _ in range(20):
        server.produce("t", large)
    with server.connect(timeout=30) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(request("GET", "/v1/consume?topic=t&group=g&owner=deaf&lease_ms=1000"))
        assert deaf.recv(12) == b"HTTP/1.1 200"
        seen: set[int] = set()
        with server.consume("t", owner="good") as items:
            for item in items:
                assert item["value"] == large
                server.ack("t", item, owner="good")
                seen.add(item["offset"])
                if len(seen) == 20:
                    break
        server.await_log("dropping a stream of owner deaf that does not read")
    assert server.is_well()


def test_answers_that_are_not_read_are_not_piled_up(start_server: StartServer) -> None:
    """Small questions with large answers, asked by somebody who never reads, must not fill the memory."""
    server = start_server("--stall-timeout-ms", "1000")
    for number in range(300):
        server.create(f"{number:0200}")
    before = server.metric("process_resident_memory_bytes")
    with server.connect(timeout=30) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while True:
                deaf.sendall(request("GET", "/v1/topics") * 1000)
    assert server.metric("process_resident_memory_bytes") - before < 50 << 20
    assert server.is_well()


def test_answers_that_are_read_late_all_come(start_server: StartServer) -> None:
    """The server stops reading while nobody reads its answers, and goes on when somebody does."""
    server = start_server()
    for number in range(300):
        server.create(f"{number:0200}")
    questions = (request("GET", "/v1/topics") + request("GET", "/nothing")) * 200 + LAST
    with server.connect(timeout=30) as connection:
        sender = threading.Thread(target=connection.sendall, args=(questions,))
        sender.start()
        assert server.is_well()
        received = _rest(connection)
        sender.join(30)
    assert statuses(received) == [200, 404] * 200 + [200]


def test_too_many_connections_are_told_so(start_memory: StartMemory) -> None:
    server = start_memory(max_connections=3)
    connections = [server.connect() for _ in range(3)]
    try:
        for connection in connections:
            connection.sendall(HEALTH)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        received = server.raw(HEALTH, finish=False)
        assert statuses(received) == [503]
        assert b'"UNAVAILABLE"' in received
        connections[0].sendall(HEALTH)
        assert connections[0].recv(65536).startswith(b"HTTP/1.1 200")
    finally:
        for connection in connections:
            connection.close()
