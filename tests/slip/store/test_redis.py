"""A store in Redis: servers that go away, and what they are told."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from redis.asyncio import Redis

from slipstream.slip.store import StoreUnavailable, Timer, UnusableStore, open_store
from slipstream.slip.store.redis import RedisStore
from tests.bus.sites.site import free_port
from tests.client.loop import in_loop
from tests.slip.store.conftest import StartValkey
from tests.slip.store.valkey import ValkeyServer

HOUR_MS = 3_600_000


@in_loop
async def test_a_server_that_was_killed_is_unavailable_and_used_again_when_it_is_back(
    start_valkey: StartValkey,
) -> None:
    server = start_valkey()
    async with open_store(server.url) as store:
        claims = (store.claim("slip:1", str(number), b"first", ttl_ms=HOUR_MS) for number in range(50))
        await asyncio.gather(*claims)
        server.kill()
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{server.port}"):
            await store.get("slip:1", "0")
        with pytest.raises(StoreUnavailable):
            await store.claim("slip:1", "0", b"second", ttl_ms=HOUR_MS)
        with pytest.raises(StoreUnavailable):
            await store.tracked()
        server.start()
        again = (store.claim("slip:1", str(number), b"second", ttl_ms=HOUR_MS) for number in range(51))
        assert await asyncio.gather(*again) == [b"first"] * 50 + [b"second"]


@in_loop
async def test_ended_slips_of_an_earlier_version_are_found_by_their_state(valkey: ValkeyServer) -> None:
    valkey.flush()
    how = {"kind": "", "step": "", "ttl_ms": HOUR_MS}
    async with open_store(valkey.url) as store:
        for slip, state in (("a", "dead-lettered"), ("b", "completed"), ("c", "started")):
            await store.track(slip, b"{}", at_ms=10, state=state, ended=state != "started", **how)  # type: ignore[arg-type]
    redis = Redis.from_url(valkey.url)
    await redis.delete("slipstream:end-states-filled", "slipstream:ended:dead-lettered", "slipstream:ended:completed")
    await redis.aclose()
    async with open_store(valkey.url) as store:
        assert [each.slip for each in await store.tracked(end_state="dead-lettered")] == ["a"]
        assert [each.slip for each in await store.tracked(end_state="completed")] == ["b"]


@in_loop
async def test_a_store_that_could_not_be_opened_may_be_tried_again(start_valkey: StartValkey) -> None:
    server = start_valkey()
    server.kill()
    store = RedisStore(server.url)
    with pytest.raises(StoreUnavailable):
        await store.open()
    server.start()
    await store.open()
    assert await store.claim("slip:1", "end", b"x", ttl_ms=HOUR_MS) == b"x"
    await store.close()


@in_loop
async def test_where_nobody_listens_the_address_is_said_without_the_password() -> None:
    port = free_port()
    with pytest.raises(StoreUnavailable, match=f"redis://127.0.0.1:{port}/0") as raised:
        await open_store(f"redis://user:hush@127.0.0.1:{port}/0?password=hush")
    assert "hush" not in str(raised.value)


@in_loop
async def test_a_wrong_password_is_said_without_it(start_valkey: StartValkey) -> None:
    server = start_valkey("--requirepass", "secret")
    with pytest.raises(StoreUnavailable, match="password") as raised:
        await open_store(server.url.replace("//", "//:hush@"))
    assert "hush" not in str(raised.value)
    async with open_store(server.url.replace("//", "//:secret@")) as store:
        assert await store.claim("slip:1", "end", b"x", ttl_ms=HOUR_MS) == b"x"


@in_loop
async def test_a_record_lives_as_long_as_the_longest_lived_of_its_facts(valkey: ValkeyServer) -> None:
    valkey.flush()
    async with open_store(valkey.url) as store, Redis.from_url(valkey.url) as redis:
        await store.claim("slip:1", "end", b"x", ttl_ms=HOUR_MS)
        await store.put("slip:1", "short", b"x", ttl_ms=1)
        await store.claim("slip:1", "shorter", b"x", ttl_ms=1)
        assert len(await store.facts("slip:1")) == 3
        assert HOUR_MS // 2 < await redis.pttl("slipstream:record:slip:1") <= HOUR_MS
        await store.put("slip:1", "long", b"x", ttl_ms=9 * HOUR_MS)
        assert await redis.pttl("slipstream:record:slip:1") > HOUR_MS
        await store.claim("slip:1", "end", b"y", ttl_ms=99 * HOUR_MS)
        assert await redis.pttl("slipstream:record:slip:1") <= 9 * HOUR_MS


@in_loop
async def test_stores_with_different_prefixes_know_nothing_of_each_other(valkey: ValkeyServer) -> None:
    valkey.flush()
    stores = [RedisStore(valkey.url, prefix=prefix) for prefix in ("one:", "other:")]
    for store in stores:
        await store.open()
        assert await store.claim("slip:1", "end", repr(store).encode(), ttl_ms=HOUR_MS) == repr(store).encode()
        assert await store.tracked() == []
        await store.track("c", b"x", at_ms=1, kind="k", step="a", state="begun", ended=False, ttl_ms=1)
        await store.schedule("retries", Timer("a", 1, b"x"))
        assert await store.due("retries", 1, limit=10, lease_ms=9) == [Timer("a", 10, b"x")]
    async with Redis.from_url(valkey.url, decode_responses=True) as redis:
        assert {str(key).partition(":")[0] for key in await redis.keys()} == {"one", "other"}
    for store in stores:
        await store.close()


@in_loop
async def test_nothing_is_left_of_slips_and_timers_that_are_over(valkey: ValkeyServer) -> None:
    valkey.flush()
    async with open_store(valkey.url) as store, Redis.from_url(valkey.url) as redis:
        for number in range(120):
            ended = number % 2 == 0
            await store.track(
                f"c-{number}", b"x", at_ms=1, kind="k", step="a", state="begun", ended=ended, ttl_ms=number
            )
        await store.schedule("retries", Timer("a", 1, b"x"))
        await store.unschedule("retries", "a", due_ms=1)
        await store.claim("slip:1", "end", b"x", ttl_ms=HOUR_MS)
        await store.remove("slip:1", "end")
        purged = 0
        while count := await store.purge(120):
            purged += count
        assert purged == 120
        assert await redis.keys() == [b"slipstream:end-states-filled"], "which says that it is no store of before"


@in_loop
async def test_two_that_tell_of_a_slip_at_once_are_both_heard(valkey: ValkeyServer) -> None:
    valkey.flush()
    async with open_store(valkey.url) as one, open_store(valkey.url) as other:
        await asyncio.gather(
            *(
                store.track(
                    "c", b"%d" % number, at_ms=number, kind="k", step="a", state=str(number), ended=False, ttl_ms=9
                )
                for number in range(1, 31)
                for store in (one, other)
            )
        )
        (tracked,) = await one.tracked()
        assert (tracked.begun_ms, tracked.moved_ms, tracked.state) == (1, 30, "30")
        assert await other.history("c") == [b"%d" % number for number in range(1, 31)]


def test_without_the_library_a_store_in_redis_says_what_to_install() -> None:
    program = """
import sys
sys.modules["redis"] = None
from slipstream.slip.store import open_store
open_store(":memory:")
try:
    open_store("redis://127.0.0.1")
except ValueError as error:
    print(error)
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'slipstream[redis]'" in said.stdout


@pytest.mark.parametrize("url", ["redis://127.0.0.1:port", "redis://127.0.0.1:6379/0?socket_timeout=soon"])
@in_loop
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UnusableStore, match="no address"):
        open_store(url)
