"""What no honest worker says on jobs.logs and jobs.status: the ledger takes no harm."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from slipstream.jobs.clock import CLOCKS_DIFFER_MS, now_ms
from slipstream.jobs.ledger import Ledger, Submission, Told, open_ledger
from slipstream.jobs.ledger.fold import TEXT_CHARS_MAX
from slipstream.jobs.ledger.snapshot import Rank
from slipstream.jobs.ledger.telling import NUMBER_MAX, STEP, STORED, told
from slipstream.jobs.messages import JobLog, JobState, JobStatus
from tests.client.loop import in_loop

TOPIC = "fetchbox.jobs.logs"
HUGE = 2**64 - 1


async def hear(ledger: Ledger, resource: str, rank: Rank, *, at_ms: int = 1, **fields: str) -> None:
    await ledger.fold_logs(TOPIC, 0, [Told("j-1", resource, rank, 0, at_ms, fields, "m" * 9_000)], 1)


async def take_on(ledger: Ledger, *resources: str) -> None:
    """As the ingress does."""
    await ledger.reserve(Submission("j-1", "", "photos", None, b"", "", "reserved", len(resources), now_ms()))
    await ledger.queue("j-1", "photos", "", "manifests/photos/j-1/metadata.json", resources)


@pytest.mark.parametrize("rank", [Rank.IN_PROGRESS, Rank.FAILED, Rank.COMPLETED])
@in_loop
async def test_a_log_from_the_end_of_time_is_taken_as_one_of_now(rank: Rank) -> None:
    async with open_ledger(":memory:") as ledger:
        await hear(ledger, "a", rank, at_ms=HUGE)
        [resource] = ledger.resources("j-1")
        assert resource.updated_ms <= now_ms() + CLOCKS_DIFFER_MS
        job = ledger.job("j-1")
        assert job is not None
        assert job.created_ms <= now_ms() + CLOCKS_DIFFER_MS


@in_loop
async def test_a_status_from_the_end_of_time_does_not_keep_its_job_for_ever() -> None:
    async with open_ledger(":memory:") as ledger:
        await ledger.fold_status(JobStatus(job_id="j-1", resources_total=1, timestamp_ms=HUGE))
        job = ledger.job("j-1")
        assert job is not None
        assert max(job.created_ms, job.updated_ms) <= now_ms() + CLOCKS_DIFFER_MS


@in_loop
async def test_an_id_with_a_zero_in_it_counts_once() -> None:
    async with open_ledger(":memory:") as ledger:
        for rank in (Rank.IN_PROGRESS, Rank.COMPLETED, Rank.COMPLETED):
            await hear(ledger, "a\0b", rank)
        await hear(ledger, "a", Rank.IN_PROGRESS)
        job = ledger.job("j-1")
        assert job is not None
        assert (job.resources_total, job.resources_completed) == (2, 1)


@in_loop
async def test_what_the_ingress_took_on_is_counted_and_not_told() -> None:
    async with open_ledger(":memory:") as ledger:
        await take_on(ledger, "a")
        absurd = JobStatus(
            job_id="j-1",
            state=JobState.JOB_STATE_FAILED,
            resources_total=2**32 - 1,
            resources_failed=2**32 - 1,
            last_error_code="LIE",
            timestamp_ms=HUGE,
        )
        assert await ledger.fold_status(absurd) is None
        await hear(ledger, "nobody asked for it", Rank.IN_PROGRESS)
        await hear(ledger, "a", Rank.COMPLETED)
        job = ledger.job("j-1")
        assert job is not None
        assert (job.state, job.resources_total, job.last_error_code) == ("completed", 1, "")
        assert [each.resource_id for each in ledger.resources("j-1")] == ["a"]


@in_loop
async def test_of_endless_texts_the_beginning_is_kept() -> None:
    async with open_ledger(":memory:") as ledger:
        long = "x" * 100_000
        await hear(ledger, "a", Rank.FAILED, code=long, key=long, sha256=long, mime=long, job_type=long, tenant=long)
        job, [resource] = ledger.job("j-1"), ledger.resources("j-1")
        assert job is not None
        texts = [job.job_type, job.tenant, job.last_error_code, job.last_error_message]
        texts += [resource.key, resource.sha256, resource.mime, resource.error_code, resource.error_message]
        assert {len(text) for text in texts} == {TEXT_CHARS_MAX}


@in_loop
async def test_sizes_that_no_file_has_are_cut_and_the_sum_as_well(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with open_ledger(str(path)) as ledger:
        for number in range(3):
            await hear(ledger, f"r{number}", Rank.COMPLETED, bytes="9" * 18)
        job = ledger.job("j-1")
        assert job is not None
        assert job.bytes_stored == NUMBER_MAX
        await hear(ledger, "r0", Rank.COMPLETED, at_ms=2, bytes="5")
    with sqlite3.connect(path) as connection:  # as version 2 had it, which took any size
        connection.execute("UPDATE resources SET size = 9223372036854775807")
        connection.execute("ALTER TABLE jobs DROP COLUMN bytes")
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    async with open_ledger(str(path)) as ledger:
        job = ledger.job("j-1")
        assert job is not None
        assert job.bytes_stored == NUMBER_MAX


@pytest.mark.parametrize(("job_id", "resource_id"), [("j" * 129, "a"), ("j-1", "a" * 129), ("", "a"), ("j-1", "")])
def test_a_name_that_no_task_can_have_is_left_out(job_id: str, resource_id: str) -> None:
    assert told(JobLog(job_id=job_id, resource_id=resource_id, fields={STEP: STORED}), 0) is None
