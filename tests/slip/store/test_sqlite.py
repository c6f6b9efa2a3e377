"""A store in a file: processes that share it, processes that are killed, and files that are something else."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from slipstream.slip.store import StoreUnavailable, UnusableStore, open_store
from slipstream.slip.store import sqlite as sqlite_store
from slipstream.slip.store.sqlite import END_STATE, SqliteStore
from tests.client.loop import in_loop

HOUR_MS = 3_600_000

CLAIM_AND_SAY_SO = """
import asyncio, sys
from slipstream.slip.store import open_store

async def main(path, value, count):
    async with open_store(path) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        claims = (store.claim(f"slip:{n}", "end", value, ttl_ms=3_600_000) for n in range(count))
        kept = await asyncio.gather(*claims)
        print(b" ".join(kept).decode(), flush=True)
        sys.stdin.readline()

asyncio.run(main(sys.argv[1], sys.argv[2].encode(), int(sys.argv[3])))
"""


class Claimer:
    """A process that claims `count` facts when it is told to, says what was kept, and waits."""

    def __init__(self, path: Path, value: str, count: int) -> None:
        command = [sys.executable, "-c", CLAIM_AND_SAY_SO, str(path), value, str(count)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def tell(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@in_loop
async def test_among_processes_the_first_to_claim_is_right_and_a_killed_one_has_not_said_so_in_vain(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "slips.db"
    claimers = [Claimer(path, value, 200) for value in ("one", "other")]
    try:
        assert [claimer.line() for claimer in claimers] == ["ready", "ready"]
        for claimer in claimers:
            claimer.tell()
        kept = [claimer.line().split() for claimer in claimers]
    finally:
        for claimer in claimers:
            claimer.kill()
    assert kept[0] == kept[1]
    assert len(kept[0]) == 200
    async with open_store(str(path)) as store:
        assert [await store.get(f"slip:{number}", "end") for number in range(200)] == [
            each.encode() for each in kept[0]
        ]


@in_loop
async def test_many_may_open_a_new_file_at_once(tmp_path: Path) -> None:
    stores = await asyncio.gather(*(open_store(str(tmp_path / "slips.db")) for _ in range(8)))
    kept = await asyncio.gather(
        *(store.claim("slip:1", "end", b"%d" % number, ttl_ms=HOUR_MS) for number, store in enumerate(stores))
    )
    assert len(set(kept)) == 1
    await asyncio.gather(*(store.close() for store in stores))


@in_loop
async def test_an_open_store_is_one_thread_and_a_closed_one_none(tmp_path: Path) -> None:
    threads = set(threading.enumerate())
    async with open_store(f"sqlite://{tmp_path}/slips.db") as store:
        assert len(set(threading.enumerate()) - threads) == 1
        await store.put("slip:1", "end", b"x", ttl_ms=HOUR_MS)
    assert set(threading.enumerate()) <= threads
    assert (tmp_path / "slips.db").exists()


@in_loop
async def test_a_write_is_synced_before_it_returns(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "slips.db")
    await store.open()
    assert store._writer is not None
    settings = [
        await store._writer.ask(lambda cursor, name: cursor.execute(f"PRAGMA {name}").fetchone()[0], name)
        for name in ("journal_mode", "synchronous")
    ]
    assert settings == ["wal", 2], "2 is FULL: what is not synced is lost with the power, though it was promised"
    await store.close()


@in_loop
async def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    path.write_bytes(b"these are my notes\n" * 100)
    threads = set(threading.enumerate())
    with pytest.raises(UnusableStore, match=r"slips\.db is no database.*name another file"):
        await open_store(str(path))
    assert path.read_bytes() == b"these are my notes\n" * 100
    assert set(threading.enumerate()) <= threads


@in_loop
async def test_a_database_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE books (title)")
    connection.execute("PRAGMA user_version = 1")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UnusableStore, match="something else: name another file"):
        await open_store(str(path))
    assert path.read_bytes() == before


@in_loop
async def test_a_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    async with open_store(str(path)):
        pass
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(UnusableStore, match=r"newer slipstream .*7.*upgrade"):
        await open_store(str(path))


@in_loop
async def test_a_store_that_could_not_be_opened_may_be_tried_again(tmp_path: Path) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("no directory")
    store = SqliteStore(in_the_way / "slips.db")
    with pytest.raises(StoreUnavailable, match=r"data/slips\.db"):
        await store.open()
    in_the_way.unlink()
    await store.open()
    assert await store.claim("slip:1", "end", b"x", ttl_ms=HOUR_MS) == b"x"
    await store.close()


@in_loop
async def test_a_file_of_an_earlier_version_gets_the_index_of_end_states(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    how = {"at_ms": 10, "kind": "", "step": "", "state": "dead-lettered", "ended": True, "ttl_ms": HOUR_MS}
    async with open_store(str(path)) as store:
        await store.track("c-1", b"{}", **how)  # type: ignore[arg-type]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP INDEX slips_by_end_state")
    async with open_store(str(path)) as store:
        assert [each.slip for each in await store.tracked(end_state="dead-lettered")] == ["c-1"]
    with contextlib.closing(sqlite3.connect(path)) as connection:
        where = f"ended = 1 AND {END_STATE} = ? ORDER BY moved_ms DESC LIMIT ?"
        plan = connection.execute(f"EXPLAIN QUERY PLAN SELECT slip FROM slips WHERE {where}", ("x", 1)).fetchall()
    assert "slips_by_end_state" in str(plan)
    assert "TEMP B-TREE" not in str(plan)


@in_loop
async def test_a_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnusableStore, match="directory: name a file in it"):
        await open_store(str(tmp_path))


@in_loop
async def test_a_file_that_was_damaged_says_so_when_it_is_used(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    async with open_store(str(path)) as store:
        await asyncio.gather(*(store.put("slip:1", str(number), bytes(1_000), ttl_ms=HOUR_MS) for number in range(500)))
    content = bytearray(path.read_bytes())
    content[4096 * 2 :] = b"\xa5" * (len(content) - 4096 * 2)
    path.write_bytes(content)
    with pytest.raises(UnusableStore, match=r"slips\.db is no database, or damaged .*-wal and -shm"):
        async with open_store(str(path)) as store:
            await store.facts("slip:1")


@in_loop
async def test_a_file_that_another_keeps_locked_is_unavailable_for_writes_until_it_is_not(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"
    store = SqliteStore(path, busy_ms=20)
    await store.open()
    await store.put("slip:1", "end", b"x", ttl_ms=HOUR_MS)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    claims = (store.claim("slip:1", name, b"y", ttl_ms=HOUR_MS) for name in ("end", "another", "third"))
    for failure in await asyncio.gather(*claims, return_exceptions=True):
        assert isinstance(failure, StoreUnavailable)
        assert "another process kept it locked for more than 20 ms" in str(failure)
    assert await store.facts("slip:1") == {"end": b"x"}
    other.execute("ROLLBACK")
    other.close()
    assert await store.claim("slip:1", "another", b"y", ttl_ms=HOUR_MS) == b"y"
    await store.close()


@in_loop
async def test_a_full_disk_is_said_to_whom_it_concerns_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite_store._connect

    def connect_to_small_disk(path: str, busy_ms: int) -> sqlite3.Connection:
        connection = connect(path, busy_ms)
        connection.execute("PRAGMA max_page_count = 100")
        return connection

    monkeypatch.setattr(sqlite_store, "_connect", connect_to_small_disk)
    async with open_store(str(tmp_path / "slips.db")) as store:
        await store.put("slip:1", "end", b"x", ttl_ms=HOUR_MS)
        large = store.put("slip:1", "large", bytes(1_000_000), ttl_ms=HOUR_MS)
        small = store.put("slip:1", "small", b"y", ttl_ms=HOUR_MS)
        failure, done = await asyncio.gather(large, small, return_exceptions=True)
        assert isinstance(failure, StoreUnavailable)
        assert "full" in str(failure)
        assert done is None
        assert await store.facts("slip:1") == {"end": b"x", "small": b"y"}


@in_loop
async def test_what_one_may_not_write_harms_nobody_who_wrote_at_the_same_time(tmp_path: Path) -> None:
    async with open_store(str(tmp_path / "slips.db")) as store:
        values: list[object] = [b"first", object(), b"third"]
        claims = [store.claim("slip:1", str(number), value, ttl_ms=HOUR_MS) for number, value in enumerate(values)]  # type: ignore[arg-type]
        first, second, third = await asyncio.gather(*claims, return_exceptions=True)
        assert (first, third) == (b"first", b"third")
        assert isinstance(second, sqlite3.Error)
        assert await store.facts("slip:1") == {"0": b"first", "2": b"third"}


@in_loop
async def test_a_fact_is_there_until_its_time_is_over_and_then_purged(tmp_path: Path) -> None:
    now_ms = 1_000
    store = SqliteStore(tmp_path / "slips.db", now_ms=lambda: now_ms)
    await store.open()
    await asyncio.gather(*(store.put("slip:1", str(number), b"short", ttl_ms=10) for number in range(1_200)))
    await store.claim("slip:1", "end", b"long", ttl_ms=20)
    now_ms = 1_009
    assert len(await store.facts("slip:1")) == 1_201
    now_ms = 1_010
    assert await store.facts("slip:1") == {"end": b"long"}
    purged = 0
    while count := await store.purge(now_ms):
        purged += count
    assert purged == 1_200
    assert await store.get("slip:1", "end") == b"long"
    now_ms = 1_020
    assert await store.get("slip:1", "end") is None
    assert await store.claim("slip:1", "end", b"new", ttl_ms=20) == b"new"
    await store.close()
