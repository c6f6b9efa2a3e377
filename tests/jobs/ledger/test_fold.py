"""The fold: the same whatever order things are heard in, how often, and in how many pieces."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.jobs.ledger import Rank, Told, open_ledger
from slipstream.jobs.ledger.telling import told
from slipstream.jobs.messages import JobLog, JobState, JobStatus
from tests.client.loop import in_loop

STEPS = {
    "started": Rank.IN_PROGRESS,
    "failed": Rank.FAILED,
    "stored": Rank.COMPLETED,
}

RESOURCES = ["a", "b", "a\0", "ü", "😀"]

LOGS = st.builds(
    lambda job, resource, step, at_ms, code: Told(
        job, resource, STEPS[step], 7, at_ms, {"step": step, "code": code if step == "failed" else ""}, f"{step} {code}"
    ),
    st.sampled_from(["j1", "j2"]),
    st.sampled_from(RESOURCES),
    st.sampled_from(list(STEPS)),
    st.integers(1, 4),
    st.sampled_from(["DOWNLOAD_DNS", "DOWNLOAD_RESET"]),
)


async def _folded(batches: Sequence[tuple[int, Sequence[Told]]]) -> list[object]:
    async with open_ledger(":memory:") as ledger:
        for partition, batch in batches:
            await ledger.fold_logs("logs", partition, batch)
        known: list[object] = []
        for job in sorted(ledger.jobs(), key=lambda job: job.job_id):
            known.append((job.job_id, job.resources_total, job.resources_completed, job.resources_failed))
            known.append((job.state, job.last_error_code, job.last_error_message))
            for each in ledger.resources(job.job_id):
                is_ended = each.state in {"failed", "completed"}
                known.append((each.resource_id, each.state, each.error_code, each.updated_ms if is_ended else 0))
        return known


@settings(max_examples=75)
@given(st.lists(LOGS, min_size=1, max_size=12), st.data())
def test_any_order_any_repeats_and_any_pieces_come_to_the_same(logs: list[Told], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(logs)) + data.draw(st.lists(st.sampled_from(logs), max_size=6))
    batches: list[tuple[int, list[Told]]] = []
    while shuffled:
        size = data.draw(st.integers(1, len(shuffled)))
        batches.append((data.draw(st.integers(0, 3)), shuffled[:size]))
        shuffled = shuffled[size:]
    expected = asyncio.run(_folded([(0, logs)]))
    assert asyncio.run(_folded(batches)) == expected
    best: dict[tuple[str, str], Rank] = {}
    for each in logs:
        place = (each.job_id, each.resource_id)
        best[place] = max(each.rank, best.get(place, Rank.QUEUED))
    for job_id in {job for job, _ in best}:
        ranks = [rank for (job, _), rank in best.items() if job == job_id]
        completed, failed = ranks.count(Rank.COMPLETED), ranks.count(Rank.FAILED)
        assert (job_id, len(ranks), completed, failed) in expected


@in_loop
async def test_what_was_stored_is_stored_whatever_a_second_worker_met_with() -> None:
    stored = Told("j", "a", Rank.COMPLETED, 0, 5, {"key": "k"}, "")
    failed = Told("j", "a", Rank.FAILED, 1, 9, {"code": "DOWNLOAD_DNS"}, "no")
    async with open_ledger(":memory:") as ledger:
        for batch in ([stored], [failed], [stored, failed]):
            await ledger.fold_logs("logs", 0, batch)
            job = ledger.job("j")
            assert job is not None
            assert (job.state, job.resources_completed, job.resources_failed) == ("completed", 1, 0)
        assert await ledger.fold_logs("logs", 0, [stored, failed]) == [], "it is no news"


@in_loop
async def test_what_others_say_of_a_job_counts_and_the_newest_of_it_wins() -> None:
    def status(at_ms: int, completed: int, failed: int = 0, total: int = 4) -> JobStatus:
        return JobStatus(
            job_id="j",
            state=JobState.JOB_STATE_IN_PROGRESS,
            resources_total=total,
            resources_completed=completed,
            resources_failed=failed,
            timestamp_ms=at_ms,
        )

    async with open_ledger(":memory:") as ledger:
        assert await ledger.fold_status(status(10, 2)) is not None
        assert await ledger.fold_status(status(10, 2)) is None, "heard before"
        assert await ledger.fold_status(status(5, 1)) is None, "older"
        job = await ledger.fold_status(status(5, 1, total=6))
        assert job is not None
        assert (job.resources_total, job.resources_completed) == (6, 2)
        job = await ledger.fold_status(status(11, 3, 3, total=6))
        assert job is not None
        assert job.state == "partial"
        # More than anybody can have: the numbers stay within the total.
        job = await ledger.fold_status(status(12, 50, 50, total=6))
        assert job is not None
        assert (job.resources_completed, job.resources_failed) == (6, 0)


@in_loop
async def test_a_clock_that_is_far_off_does_no_harm() -> None:
    log = JobLog(job_id="j", resource_id="a", fields={"step": "stored", "bytes": "9" * 30}, timestamp_ms=2**64 - 1)
    heard = told(log, 0)
    assert heard is not None
    async with open_ledger(":memory:") as ledger:
        await ledger.fold_logs("logs", 0, [heard])
        await ledger.fold_status(JobStatus(job_id="k", resources_total=2**32 - 1, timestamp_ms=2**64 - 1))
        assert len(ledger.jobs()) == 2
