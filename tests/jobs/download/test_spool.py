"""The bytes of a download: few in memory, many in a file, hashed on the way, and gone at the end."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from pathlib import Path
from typing import IO
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs.download.checksum import parse_checksum
from slipstream.jobs.download.spool import BATCH_BYTES, Spool
from slipstream.jobs.failure import Code, TaskFailed
from tests.client.loop import in_loop
from tests.jobs.download.workshop import job_settings
from tests.jobs.hostile_server import body


def read(spool: Spool) -> bytes:
    content = spool.content()
    return content if isinstance(content, bytes) else content.read()


async def fill(spool: Spool, pieces: list[bytes]) -> None:
    for piece in pieces:
        await spool.write(piece)
    await spool.finish()


@in_loop
async def test_few_bytes_stay_in_memory_and_need_no_thread(tmp_path: Path) -> None:
    with Spool(job_settings(spool=str(tmp_path))) as spool, mock.patch.object(Spool, "_in_thread") as thread:
        await fill(spool, [b"a" * 1000, b"b" * 1000])
        assert not thread.called
        assert spool.is_in_memory
        assert spool.content() == b"a" * 1000 + b"b" * 1000
        assert spool.sha256 == hashlib.sha256(b"a" * 1000 + b"b" * 1000).hexdigest()


@in_loop
async def test_many_bytes_are_in_a_file_without_a_name(tmp_path: Path) -> None:
    data = body(3 * BATCH_BYTES)
    folder = tmp_path / "made" / "if needed"
    with Spool(job_settings(spool=str(folder), spool_memory_bytes=1000)) as spool:
        await fill(spool, [data[:900], data[900:200_000], data[200_000:]])
        assert not spool.is_in_memory
        assert not list(folder.iterdir()), "a worker that is killed leaves nothing behind"
        assert read(spool) == data
        assert read(spool) == data, "it can be read again"
        assert (spool.size, spool.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        content = spool.content()
    assert not isinstance(content, bytes)
    assert content.closed


@pytest.mark.parametrize("memory_bytes", [0, 1000, 10**6])
@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha256", "sha512"])
def test_the_promised_checksum_is_verified(memory_bytes: int, algorithm: str) -> None:
    async def story() -> None:
        hint = parse_checksum(f"{algorithm}:{hashlib.new(algorithm, body(5000)).hexdigest()}")
        with Spool(job_settings(spool_memory_bytes=memory_bytes), hint) as spool:
            await fill(spool, [body(5000)])
            spool.verify()
            await spool.start_anew()
            await fill(spool, [b"something else"])
            with pytest.raises(TaskFailed, match=f"14 bytes have the checksum {algorithm}:") as caught:
                spool.verify()
            assert caught.value.code is Code.DOWNLOAD_CHECKSUM
            assert not caught.value.is_retryable
            spool.is_resumed = True
            with pytest.raises(TaskFailed) as caught:
                spool.verify()
            assert caught.value.is_retryable, "two halves may be of two versions"

    asyncio.run(story())


@in_loop
async def test_nothing_has_a_checksum_too() -> None:
    with Spool(job_settings(), parse_checksum(hashlib.sha1(b"").hexdigest())) as spool:
        await spool.finish()
        spool.verify()
        assert spool.content() == b""
        assert spool.sha256 == hashlib.sha256(b"").hexdigest()


@given(st.lists(st.integers(0, 3000), max_size=12), st.integers(0, 5000), st.lists(st.integers(0, 11), max_size=2))
def test_it_holds_what_was_written_since_it_was_last_started_anew(
    sizes: list[int], memory_bytes: int, anew_at: list[int]
) -> None:
    async def story() -> None:
        with (
            mock.patch("slipstream.jobs.download.spool.BATCH_BYTES", 2000),
            mock.patch("slipstream.jobs.download.spool.INLINE_BYTES", 1000),
            Spool(job_settings(spool_memory_bytes=memory_bytes)) as spool,
        ):
            expected = b""
            for number, size in enumerate(sizes):
                if number in anew_at:
                    await spool.start_anew()
                    expected = b""
                await spool.write(body(size))
                expected += body(size)
            await spool.finish()
            assert (read(spool), spool.size) == (expected, len(expected))
            assert spool.sha256 == hashlib.sha256(expected).hexdigest()

    asyncio.run(story())


@in_loop
async def test_who_is_cancelled_while_a_thread_writes_waits_for_it() -> None:
    """Otherwise the thread would write to a file that is closed, or half of a piece would be missing later."""
    loop = asyncio.get_running_loop()
    begun, go = asyncio.Event(), threading.Event()
    with Spool(job_settings(spool_memory_bytes=0)) as spool:
        take = Spool._take

        def slow(self: Spool, pieces: list[bytes]) -> None:
            loop.call_soon_threadsafe(begun.set)
            go.wait()
            take(self, pieces)

        with mock.patch.object(Spool, "_take", slow):
            writing = asyncio.create_task(spool.write(body(BATCH_BYTES)))
            await begun.wait()
            writing.cancel()
            await asyncio.sleep(0)
            assert not writing.done()
            go.set()
            await asyncio.gather(writing, return_exceptions=True)
        assert writing.cancelled()
        await spool.write(b"more")
        await spool.finish()
        assert read(spool) == body(BATCH_BYTES) + b"more"


@in_loop
async def test_a_disk_that_is_full_is_a_failure_worth_another_try_from_the_start() -> None:
    class Full:
        def writelines(self, pieces: list[bytes]) -> None:
            raise OSError(28, "No space left on device")

        def close(self) -> None: ...

    def full(self: Spool) -> IO[bytes]:
        return Full()  # type: ignore[return-value]

    with mock.patch.object(Spool, "_open", full), Spool(job_settings(spool_memory_bytes=10)) as spool:
        spool.validator = '"v1"'
        with pytest.raises(TaskFailed, match="No space left") as caught:
            await spool.write(body(100))
        assert caught.value.code is Code.SYSTEM_SPOOL
        assert caught.value.is_retryable
        assert not spool.validator
