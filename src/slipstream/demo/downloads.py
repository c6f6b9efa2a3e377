"""The first scene: jobs that download from a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from slipstream.demo.scene import Tell
from slipstream.demo.web import Web, sha256
from slipstream.jobs.client import JobDetails, JobsClient

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 0.5

WRONG_CHECKSUM = "sha256:" + "0" * 64


class Downloads(msgspec.Struct, frozen=True):
    """What became of it."""

    jobs: list[JobDetails]

    @property
    def stored(self) -> int:
        return sum(job.resources_completed for job in self.jobs)

    @property
    def failed(self) -> int:
        return sum(job.resources_failed for job in self.jobs)

    @property
    def retried(self) -> int:
        """Files that took more than one attempt, and came."""
        return sum(each.attempts > 1 and each.state == "completed" for job in self.jobs for each in job.resources)

    @property
    def partial(self) -> JobDetails:
        """The job to look at."""
        return next((job for job in self.jobs if job.resources_failed), self.jobs[0])


def manifests(web: Web, files: Sequence[Path]) -> dict[str, list[dict[str, Any]]]:
    """By job type: one that is fine, one that takes patience, one of which not everything can be had."""

    def ask(way: str, *numbers: int) -> list[dict[str, Any]]:
        return [
            {"id": f"{way}-{files[number].stem}", "url": f"{web.url}/{way}/{files[number].name}"} for number in numbers
        ]

    checked = [each | {"checksum": sha256(files[number])} for number, each in enumerate(ask("fine", 0, 1, 2, 3))]
    wrong = [each | {"id": "altered", "checksum": WRONG_CHECKSUM} for each in ask("fine", 11)]
    return {
        "books": [*checked, *ask("slow", 4, 5)],
        "crawl": [*ask("down", 6, 7), *ask("busy", 8), *ask("torn", 9)],
        "archive": [*ask("fine", 10), *ask("gone", 0), *wrong],
    }


async def download(jobs: JobsClient, web: Web, files: Sequence[Path], run: str, tell: Tell) -> Downloads:
    """Submits the jobs, and returns when each has ended."""
    wanted = manifests(web, files)
    total = sum(map(len, wanted.values()))
    tell(0, total)
    ids = [
        (
            await jobs.submit(
                name, {"manifest_version": "v1", "resources": resources}, idempotency_key=f"{run}-{name}", tenant=run
            )
        )
        for name, resources in wanted.items()
    ]
    pause = FIRST_PAUSE_S
    while True:
        found = [await jobs.job(accepted.job_id) for accepted in ids]
        tell(sum(job.resources_completed + job.resources_failed for job in found), total)
        if all(job.is_ended for job in found):
            return Downloads(found)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)
