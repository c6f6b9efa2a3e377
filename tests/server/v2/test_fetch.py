"""`/v2/fetch`: how many, how large, how long, and who gets what."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec

from tests.conftest import StartServer
from tests.server.conftest import StartMemory
from tests.server.v2.wire import MSGPACK, V2, values


def test_up_to_so_many_messages(v2: V2) -> None:
    v2.produce(*map(str, range(5)))
    assert values(v2.fetch(max_messages=2)) == ["0", "1"]
    assert values(v2.fetch(max_messages=10)) == ["2", "3", "4"]
    assert v2.fetch() == []


def test_up_to_so_many_bytes_and_at_least_one_message(v2: V2) -> None:
    v2.produce("x" * 400, "y" * 400, "z" * 400, "w" * 5_000)
    assert [len(value) for value in values(v2.fetch(max_bytes=1_000))] == [400, 400]
    assert [len(value) for value in values(v2.fetch(max_bytes=1_000))] == [400]
    assert [len(value) for value in values(v2.fetch(max_bytes=1_000))] == [5_000], (
        "larger than was asked for, but alone"
    )


def test_a_fetch_waits_for_the_first_message(v2: V2) -> None:
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(v2.fetch, wait_ms=10_000)
        v2.server.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
        V2(v2.server, v2.topic).call("POST", "/v2/produce", {"topic": v2.topic, "messages": [{"value": "came"}]})
        assert values(waiting.result()) == ["came"]
    v2.server.await_metric(0, "slipstream_consumers", topic=v2.topic, group="g")


def test_a_fetch_whose_time_is_up_is_answered_with_nothing(v2: V2) -> None:
    assert v2.fetch(wait_ms=50) == []


def test_a_client_that_goes_away_while_it_waits_takes_nothing_with_it(v2: V2) -> None:
    body = json.dumps({"topic": v2.topic, "group": "g", "owner": "gone", "wait_ms": 60_000}).encode()
    with v2.server.connect() as connection:
        connection.sendall(b"POST /v2/fetch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
        v2.server.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
    v2.server.await_metric(0, "slipstream_consumers", topic=v2.topic, group="g")
    v2.produce("a")
    (message,) = v2.fetch(owner="here")
    assert message["attempts"] == 1


def test_members_of_a_group_share_and_groups_do_not(v2: V2) -> None:
    v2.produce(*map(str, range(4)))
    mine, theirs = v2.fetch(owner="a", max_messages=2), v2.fetch(owner="b", max_messages=2)
    assert sorted(values(mine) + values(theirs)) == ["0", "1", "2", "3"]
    assert values(v2.fetch(group="other")) == ["0", "1", "2", "3"]


def test_a_stream_and_a_fetch_may_serve_one_group(v2: V2) -> None:
    with v2.server.consume(v2.topic, owner="stream", lease_ms=60_000) as items:
        v2.produce("a")
        assert next(items)["value"] == "a"
    v2.produce("b")
    assert values(v2.fetch(owner="pull")) == ["b"]


def test_messagepack_is_answered_with_bytes(v2: V2) -> None:
    v2.produce("a")
    body = msgspec.msgpack.encode({"topic": v2.topic, "group": "g", "owner": "o"})
    response = v2.respond("POST", "/v2/fetch", body, headers={"Content-Type": MSGPACK})
    (message,) = msgspec.msgpack.decode(response.content)["messages"]
    assert (message["value"], message["key"], message["attempts"]) == (b"a", b"", 1)


def test_accept_chooses_the_form_of_the_answer(v2: V2) -> None:
    body = {"topic": v2.topic, "group": "g", "owner": "o"}
    response = v2.respond("POST", "/v2/fetch", body, headers={"Accept": MSGPACK})
    assert msgspec.msgpack.decode(response.content) == {"messages": []}


def test_the_limit_of_the_topic_holds_for_fetches_too(v2: V2) -> None:
    v2.call("PATCH", v2.path(), {"config": {"max_in_flight": 2}})
    v2.produce("a", "b", "c")
    taken = v2.fetch()
    assert values(taken) == ["a", "b"]
    assert v2.fetch() == []
    v2.ack(taken[0])
    assert values(v2.fetch()) == ["c"]


def test_what_a_fetch_may_ask_for_is_limited(v2: V2) -> None:
    assert "max_wait_ms" in v2.fetch(wait_ms=60_001, expect=400)["message"]
    assert v2.fetch(max_messages=10**6, max_bytes=1 << 40) == [], "less than was asked for is an answer, too"
    assert "lease_ms_max" in v2.fetch(lease_ms=10**9, expect=400)["message"]
    assert "owner" in v2.fetch(owner="no spaces", expect=400)["message"]
    assert "unknown field" in v2.fetch(colour="red", expect=400)["message"]


def test_a_stop_answers_the_fetches_that_wait(start_server: StartServer) -> None:
    server = start_server()
    server.create("t")
    began = threading.Event()
    with ThreadPoolExecutor() as pool:

        def fetch() -> httpx.Response:
            began.set()
            body = {"topic": "t", "group": "g", "owner": "o", "wait_ms": 60_000}
            return httpx.post(server.base + "/v2/fetch", json=body, timeout=30)

        waiting = pool.submit(fetch)
        began.wait()
        server.await_metric(1, "slipstream_consumers", topic="t", group="g")
        assert server.stop() == 0
        assert waiting.result().json() == {"messages": []}


def test_a_group_forgotten_or_a_topic_deleted_while_a_fetch_waits_is_404(v2: V2) -> None:
    for path in (v2.path("groups", "g"), v2.path()):
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(V2(v2.server, v2.topic).fetch, wait_ms=30_000, expect=404)
            v2.server.await_metric(1, "slipstream_consumers", topic=v2.topic, group="g")
            assert httpx.delete(v2.server.base + path, timeout=30).status_code == 204
            assert "deleted meanwhile" in waiting.result()["message"]


def test_a_fetch_gets_no_more_than_a_read_may(start_memory: StartMemory) -> None:
    """Ten thousand messages of a megabyte would be in memory at once."""
    server = start_memory(max_read_bytes=1000)
    server.create("t")
    v2 = V2(server, "t")
    v2.produce(*("x" * 400 for _ in range(7)))
    assert len(v2.fetch(max_bytes=10**12)) == 2
