"""Consumer idempotency over HTTP: begun by one worker at a time, done once."""

from __future__ import annotations

from typing import Any

from tests.conftest import StartServer
from tests.server.conftest import MemoryServer
from tests.server.v2.wire import V2


def once(v2: V2, verb: str, owner: str = "o", expect: int = 200, **fields: Any) -> Any:
    body = {"topic": v2.topic, "group": "g", "key": "k", "owner": owner, **fields}
    return v2.call("POST", f"/v2/once/{verb}", body, expect)


def test_what_is_committed_is_not_done_again(start_server: StartServer) -> None:
    server = start_server()
    v2 = V2(server, "t")
    v2.call("POST", "/v2/topics", {"name": "t"}, 201)
    v2.fetch()
    assert once(v2, "begin") == {"proceed": True}
    once(v2, "commit", expect=204)
    assert once(v2, "begin", owner="other") == {"proceed": False}
    server.restart()
    assert once(v2, "begin", owner="other") == {"proceed": False}


def test_what_failed_may_begin_again(v2: V2) -> None:
    v2.fetch()
    once(v2, "begin")
    once(v2, "fail", expect=204, error="no money")
    assert once(v2, "begin", owner="other") == {"proceed": True}


def test_another_worker_waits_until_the_lease_is_over(memory: MemoryServer, in_memory: V2) -> None:
    v2 = in_memory
    v2.fetch()
    once(v2, "begin", lease_ms=5_000)
    assert once(v2, "begin", owner="other", expect=409)["error"] == "FAILED_PRECONDITION"
    assert once(v2, "begin") == {"proceed": True}, "its owner may begin again, and so go on longer"
    memory.advance(30_000)
    assert once(v2, "begin", owner="other") == {"proceed": True}
    once(v2, "commit", expect=409)
    once(v2, "commit", owner="other", expect=204)


def test_tenants_groups_and_keys_are_apart(v2: V2) -> None:
    v2.fetch()
    apart: list[dict[str, Any]] = [{}, {"tenant_id": "t"}, {"key": "k2"}]
    for fields in apart:
        assert once(v2, "begin", **fields) == {"proceed": True}


def test_what_is_wrong_is_said(v2: V2) -> None:
    assert "has no group" in once(v2, "begin", expect=404)["message"]
    v2.fetch()
    assert "begin it first" in once(v2, "commit", expect=409)["message"]
    assert "key is required" in once(v2, "begin", expect=400, key="")["message"]
