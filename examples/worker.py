"""A worker that survives: its own mistakes, the end of its server, and an answer that never came.

    python examples/worker.py http://127.0.0.1:8080 orders billing worker-1

Uses nothing but the standard library.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

LEASE_MS = 30_000
"""Longer than the work takes: when it runs out, somebody else is handed the message."""


def handle(item: dict[str, Any]) -> None:
    """The work. Whatever it raises becomes `last_error` of the next attempt."""
    print(item["partition"], item["offset"], item["attempts"], item["value"], flush=True)


def post(base: str, path: str, body: dict[str, Any]) -> int:
    request = urllib.request.Request(base + path, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as refusal:
        return refusal.code


def settle(base: str, path: str, body: dict[str, Any]) -> None:
    """Says what became of a message until somebody has heard it.

    No answer means "maybe". Saying it again is always right: 204 if it counts now or did before, 409 if the lease ran
    out and the message is another's now, 400 if the server has never handed it out (it was restarted in that instant).
    In the last two cases it comes again, or has been dealt with.
    """
    while True:
        try:
            if post(base, path, body) in {204, 400, 409}:
                return
        except OSError:
            pass
        time.sleep(0.2)


def work(base: str, topic: str, group: str, owner: str) -> None:
    """One connection's worth: returns when the stream ends."""
    query = urllib.parse.urlencode({"topic": topic, "group": group, "owner": owner, "lease_ms": LEASE_MS})
    with urllib.request.urlopen(f"{base}/v1/consume?{query}") as stream:
        for line in stream:
            if not line.strip():
                continue
            item = json.loads(line)
            place = {"partition": item["partition"], "offset": item["offset"]}
            body = {"topic": topic, "group": group, "owner": owner, **place}
            try:
                handle(item)
            except Exception as error:  # noqa: BLE001 - the message is to be tried again, whatever it was
                settle(base, "/v1/nack", {**body, "reason": f"{type(error).__name__}: {error}"})
            else:
                settle(base, "/v1/ack", body)


def main() -> None:
    base, topic, group, owner = sys.argv[1:]
    while True:
        try:
            work(base, topic, group, owner)
        except urllib.error.HTTPError as refusal:
            sys.exit(f"{refusal.code} {refusal.read().decode()}")
        except OSError:
            time.sleep(0.2)  # the server is away; it comes back with everything it answered for


if __name__ == "__main__":
    main()
