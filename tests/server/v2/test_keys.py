"""Messages by their idempotency key."""

from __future__ import annotations

from typing import Any

from tests.server_process import ServerProcess


def places(server: ServerProcess, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/v2/idempotency-keys/{key}").json()["places"]
    return found


def test_a_message_is_found_whoever_its_tenant_is(server: ServerProcess) -> None:
    server.create("orders", 3)
    server.create("parcels")
    server.produce("orders", "other")
    server.produce("orders", "a", key="user:1", idempotency_key="pay-17")
    server.produce("parcels", "b", idempotency_key="pay-17", tenant_id="acme")
    found = sorted(places(server, "pay-17"), key=lambda place: str(place["topic"]))
    assert found == [
        {"topic": "orders", "partition": 1, "offset": 1, "tenant_id": "", "status": "committed"},
        {"topic": "parcels", "partition": 0, "offset": 0, "tenant_id": "acme", "status": "committed"},
    ]
    assert places(server, "pay-18") == []
    assert server.get("/v2/search?q=pay-17").json()["hits"][0]["kind"] == "message"


def test_a_key_may_have_anything_in_it(server: ServerProcess) -> None:
    server.create("orders")
    server.produce("orders", "a", idempotency_key="a/b?c")
    assert [place["offset"] for place in places(server, "a%2Fb%3Fc")] == [0]


def test_a_batch_is_found_by_its_own(server: ServerProcess) -> None:
    server.create("orders")
    server.produce("orders", "first")
    server.post("/v2/produce?topic=orders&idempotency_key=batch-1", [{"value": "a"}, {"value": "b"}])
    assert [(place["topic"], place["offset"]) for place in places(server, "batch-1")] == [("orders", 1)]


def test_what_is_deleted_is_not_found(server: ServerProcess) -> None:
    server.create("orders")
    server.produce("orders", "a", idempotency_key="k")
    assert server.request("DELETE", "/v2/topics/orders").status_code == 204
    assert places(server, "k") == []
