"""A shop on an ordinary day, for looking at: topics, groups that keep up and groups that do not, dead letters."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx

from tests.server_process import ServerProcess

ITEMS = ["desk lamp", "bookshelf", "oak chair", "wool rug", "wall clock", "tea kettle"]
TOWNS = ["Leeds", "Ghent", "Porto", "Turku", "Graz", "Brno"]
REJECTED = [("no such customer: C-{}", 6), ("address of order {} cannot be read", 3)]
FAILED = ("the bank timed out after {} ms", 14)


def order(number: int) -> dict[str, Any]:
    return {
        "order_id": f"ord-{48_200 + number}",
        "customer": {"id": f"C-{1000 + number * 37 % 900}", "town": TOWNS[number % 6], "returning": number % 3 == 0},
        "lines": [
            {"item": ITEMS[(number + each) % 6], "quantity": 1 + (number * each) % 3, "price_cents": 1900 + each * 750}
            for each in range(1 + number % 3)
        ],
        "total_cents": 1900 + number % 7 * 1250,
        "currency": "EUR",
        "express": number % 4 == 0,
    }


def furnish(server: ServerProcess) -> None:
    """Fills an empty server."""
    _orders(server)
    _payments(server)
    _small_ones(server)


@contextlib.contextmanager
def visited(server: ServerProcess) -> Iterator[None]:
    """Meanwhile people look at the shop: `clicks` come in, and a group keeps up with them."""
    _create(server, "clicks", 2, retention_ms=86_400_000)
    is_over = threading.Event()
    thread = threading.Thread(target=_click, args=(server.base, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def _click(base: str, is_over: threading.Event) -> None:
    who = {"topic": "clicks", "group": "sessions", "owner": "sessions-1"}
    with httpx.Client(base_url=base, timeout=30, verify=False) as client:
        for turn in itertools.count():
            pages = [
                {"key": f"visitor:{turn * 7 % 50}", "value": json.dumps({"page": f"/shelf/{each}"})}
                for each in range(6)
            ]
            client.post("/v2/produce", json={"topic": "clicks", "messages": pages}).raise_for_status()
            taken = client.post("/v2/fetch", json={**who, "max_messages": 50, "wait_ms": 100}).json()["messages"]
            places = [{"partition": each["partition"], "offset": each["offset"]} for each in taken]
            client.post("/v2/ack", json={**who, "messages": places}).raise_for_status()
            if is_over.wait(0.15):
                return


def _orders(server: ServerProcess) -> None:
    _create(server, "orders", 4, retention_ms=14 * 86_400_000, retry={"max_attempts": 2, "backoff_ms": 0})
    for number in range(0, 360, 40):
        _produce(
            server,
            "orders",
            [
                {
                    "key": f"customer:{1000 + each * 37 % 900}",
                    "value": json.dumps(order(each)),
                    "attributes": {"content-type": "application/json", "traceparent": f"00-4bf92f3577b34da6{each:04x}"},
                    "envelope": {"tenant_id": "shop-eu", "labels": {"channel": "web" if each % 2 else "app"}},
                }
                for each in range(number, number + 40)
            ],
        )
    _work(server, "orders", "billing", 310)
    _work(server, "orders", "warehouse", 360)
    _fail(server, "orders", "shipping")
    _hold(server, "orders", "billing", "billing-worker-2", 12)
    _work(server, "orders", "analytics", 90)


def _payments(server: ServerProcess) -> None:
    _create(server, "payments", 2, retry={"max_attempts": 0, "backoff_ms": 60_000, "max_backoff_ms": 600_000})
    _produce(
        server,
        "payments",
        [
            {"key": f"customer:{each}", "value": json.dumps({"payment": f"pay-{each}", "cents": each * 120})}
            for each in range(140)
        ],
    )
    _work(server, "payments", "ledger", 100)
    taken = _fetch(server, "payments", "ledger", "ledger-7", 3)
    _settle(server, "nack", "payments", "ledger", "ledger-7", taken, reason="the ledger is locked by end-of-day")
    _hold(server, "payments", "ledger", "ledger-4", 5)


def _small_ones(server: ServerProcess) -> None:
    _create(server, "emails", 1, retention_ms=86_400_000)
    _produce(server, "emails", [{"value": f"Dear customer {each}, your parcel is on its way."} for each in range(30)])
    _work(server, "emails", "mailer", 30)
    _produce(server, "emails", [{"value": "Your chair will be there tomorrow.", "delay_ms": 3_600_000}])
    _fetch(server, "emails", "mailer", "mailer-1", 1)  # nothing is due: now it knows
    _create(server, "images.thumbnails", 2)
    _produce(server, "images.thumbnails", [{"key": "pic", "value": "iVBORw0KGgo=", "encoding": "base64"}] * 8)
    _create(server, "audit", 1, retention_ms=0)
    _produce(server, "audit", [{"value": json.dumps({"who": "ada", "did": "refund", "order": 17})}] * 60)


def _create(server: ServerProcess, name: str, partitions: int, **config: Any) -> None:
    answer = server.post("/v2/topics", {"name": name, "partitions": partitions, "config": config})
    assert answer.status_code == 201, answer.text


def _produce(server: ServerProcess, topic: str, messages: list[dict[str, Any]]) -> None:
    answer = server.post("/v2/produce", {"topic": topic, "messages": messages})
    assert answer.status_code == 200, answer.text


def _fetch(server: ServerProcess, topic: str, group: str, owner: str, number: int) -> list[dict[str, Any]]:
    body = {"topic": topic, "group": group, "owner": owner, "max_messages": number, "lease_ms": 300_000}
    answer = server.post("/v2/fetch", body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


def _settle(
    server: ServerProcess, how: str, topic: str, group: str, owner: str, taken: list[dict[str, Any]], **more: Any
) -> None:
    places = [{"partition": each["partition"], "offset": each["offset"], **more} for each in taken]
    body = {"topic": topic, "group": group, "owner": owner, "messages": places}
    answer = server.post(f"/v2/{how}", body)
    assert answer.status_code == 200, answer.text


def _work(server: ServerProcess, topic: str, group: str, number: int) -> None:
    while number and (taken := _fetch(server, topic, group, f"{group}-1", min(number, 50))):
        _settle(server, "ack", topic, group, f"{group}-1", taken)
        number -= len(taken)


def _hold(server: ServerProcess, topic: str, group: str, owner: str, number: int) -> None:
    assert len(_fetch(server, topic, group, owner, number)) == number


def _fail(server: ServerProcess, topic: str, group: str) -> None:
    """Some at once, and others after their second attempt."""
    owner = f"{group}-1"
    numbers = itertools.count(17)

    def nack(taken: list[dict[str, Any]], words: str, **more: Any) -> None:
        for each in taken:
            reason = words.format(next(numbers) * 113 % 9000)
            _settle(server, "nack", topic, group, owner, [each], reason=reason, **more)

    for words, count in REJECTED:
        nack(_fetch(server, topic, group, owner, count), words, retryable=False)
    words, count = FAILED
    nack(_fetch(server, topic, group, owner, count), words)
    _await_due(server, topic, group, count)
    everything = _fetch(server, topic, group, owner, 1_000)
    nack([each for each in everything if each["attempts"] == 2], words)
    _settle(server, "ack", topic, group, owner, [each for each in everything if each["attempts"] == 1][:300])


def _await_due(server: ServerProcess, topic: str, group: str, count: int) -> None:
    """What has failed is due again at once, which is no later than the next look of the broker."""
    while True:
        messages = server.get(f"/v2/topics/{topic}/groups/{group}").json()["messages"]
        if sum(each["state"] == "ready" for each in messages) >= count:
            return
