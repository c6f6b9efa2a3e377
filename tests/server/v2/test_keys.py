"""Messages by their idempotency key."""

from __future__ import annotations

from typing import Any

from tests.server_process import ServerProcess


def places(server: ServerProcess, key: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.get(f"/v2/idempotency-keys/{key}").json()["places"]
    return found


def test_a_message_is_found_whoever_its_tenant_is(durable: ServerProcess) -> None:
    durable.create("orders", 3)
    durable.create("parcels")
    durable.produce("orders", "other")
    durable.produce("orders", "a", key="user:1", idempotency_key="pay-17")
    durable.produce("parcels", "b", idempotency_key="pay-17", tenant_id="acme")
    found = sorted(places(durable, "pay-17"), key=lambda place: str(place["topic"]))
    assert found == [
        {"topic": "orders", "partition": 1, "offset": 1, "tenant_id": "", "status": "committed"},
        {"topic": "parcels", "partition": 0, "offset": 0, "tenant_id": "acme", "status": "committed"},
    ]
    assert places(durable, "pay-18") == []
    assert durable.get("/v2/search?q=pay-17").json()["hits"][0]["kind"] == "message"


def test_a_key_may_have_anything_in_it(durable: ServerProcess) -> None:
    durable.create("books")
    durable.produce("books", "a", idempotency_key="a/b?c")
    assert [place["offset"] for place in places(durable, "a%2Fb%3Fc")] == [0]


def test_a_batch_is_found_by_its_own(durable: ServerProcess) -> None:
    durable.create("batches")
    durable.produce("batches", "first")
    durable.post("/v2/produce?topic=batches&idempotency_key=batch-1", [{"value": "a"}, {"value": "b"}])
    assert [(place["topic"], place["offset"]) for place in places(durable, "batch-1")] == [("batches", 1)]


def test_what_is_deleted_is_not_found(durable: ServerProcess) -> None:
    durable.create("gone")
    durable.produce("gone", "a", idempotency_key="k")
    assert durable.request("DELETE", "/v2/topics/gone").status_code == 204
    assert places(durable, "k") == []
