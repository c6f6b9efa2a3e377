"""The tables of `slipstream demo`: made by a pipeline that runs, or by one that is run once, and asked in SQL."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from slipstream.cli.demo_place import Place, child
from slipstream.cli.demo_show import DemoShow, Scene
from slipstream.demo.downloads import Downloads
from slipstream.demo.scene import SceneFailed
from slipstream.demo.slips import Slips
from slipstream.pipeline.looking import NoSuchTable, Tables
from slipstream.up.guard import Guard

PIPELINE_S = 240.0
POLL_S = 1.0
LAST_LINES = 15


def questions(run: str) -> dict[str, str]:
    """About this demonstration, and no other."""
    slips = f"starts_with(correlation_id, '{run}-')"
    return {
        "How did the jobs end?": f"""\
select job_type, lower(substr(state, 11)) as state, resources_completed as stored, resources_failed as failed,
  date_diff('millisecond', first_at, ended_at) as took_ms
from job_snapshots where tenant = '{run}' order by job_type""",
        "Why could some files not be had?": f"""\
select failure_code, count(*) as files, any_value(failure_message) as said
from dead_letters where tenant = '{run}' group by failure_code order by failure_code""",
        "How did the slips end?": f"""\
select type, state, failed_step, error_code, count(*) as slips
from slip_runs where {slips} group by all order by type, slips desc""",
        "Which steps took how many attempts?": f"""\
select step, count(*) as attempts, count(error_code) as failed, round(avg(duration_ms), 1) as mean_ms
from slip_steps where {slips} group by step order by attempts desc, step""",
    }


async def make_tables(scene: Scene, guard: Guard, place: Place, downloads: Downloads, slips: Slips) -> None:
    """Returns when the tables have all that was done before. Raises SceneFailed."""
    total = len(downloads.jobs) + len(slips.told)

    def look() -> bool:
        found = len(_ended_jobs(place, downloads)) + len(_known_slips(place, slips))
        scene.tell(found, total)
        return found >= total

    scene.tell(0, total)
    if place.pipeline:
        scene.remark("waiting until it has caught up")
        await _until(look)
    else:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(_until(look))
            await _run_once(scene, guard, place)
            watching.cancel()
        if not await asyncio.to_thread(look):
            raise SceneFailed(f"pipeline: {scene.so_far} jobs and slips are in {place.tables} after it has read all")
    scene.ended(f"{len(downloads.jobs)} jobs and {len(slips.told)} slips are in the tables")


async def show_tables(show: DemoShow, place: Place, run: str) -> None:
    tables = Tables(place.tables)
    for question, sql in questions(run).items():
        show.answer(question, sql, await asyncio.to_thread(tables.query, sql))


async def _until(look: Callable[[], bool]) -> None:
    try:
        async with asyncio.timeout(PIPELINE_S):
            while not await asyncio.to_thread(look):  # noqa: ASYNC110 - of another process; there is nobody to tell us
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise SceneFailed(
            f"the pipeline has not caught up after {PIPELINE_S:.0f} s: `slipstream table list` shows how far it is; or "
            "its tables are in another directory, then name that with --data"
        ) from None


async def _run_once(scene: Scene, guard: Guard, place: Place) -> None:
    scene.remark("starting Spark, which takes 10 to 30 s")
    environment = {
        **os.environ,
        "PIPELINE_TABLES": str(place.tables),
        "PYTHONUNBUFFERED": "1",
        **({"SLIPSTREAM_URL": place.broker} if place.broker else {"PIPELINE_BUS": "nats", "NATS_URL": place.nats}),
    }
    async with child(guard, ["pipeline", "run", "--once"], environment, scene.remark) as (process, said):
        try:
            async with asyncio.timeout(PIPELINE_S):
                code = await process.ended()
        except TimeoutError:
            raise SceneFailed(f"`slipstream pipeline run --once` has not ended after {PIPELINE_S:.0f} s") from None
    if code:
        last = "\n".join(said[-LAST_LINES:])
        raise SceneFailed(f"`slipstream pipeline run --once` ended with {code}:\n{last}")


def _ended_jobs(place: Place, downloads: Downloads) -> list[str]:
    wanted = _texts([job.job_id for job in downloads.jobs])
    return _column(place, f"select job_id from job_snapshots where job_id in {wanted} and ended_at is not null")


def _known_slips(place: Place, slips: Slips) -> list[str]:
    """Ended, but for the one that waits."""
    return _column(
        place,
        f"select correlation_id from slip_runs where correlation_id in {_texts(list(slips.told))} "
        f"and (ended_at is not null or correlation_id = '{slips.waiting}')",
    )


def _column(place: Place, sql: str) -> list[str]:
    """As the tables are now: an object of theirs sees each in the version that it had at first."""
    try:
        return [row[0] for row in Tables(place.tables).query(sql)]
    except NoSuchTable:
        return []  # none of them is made yet


def _texts(values: list[str]) -> str:
    return "(" + ", ".join("'" + value.replace("'", "''") + "'" for value in values) + ")"
