"""Tasks as large as the bus takes: with the reason on top they are larger, and still become dead letters, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.bus.drivers.embedded.broker import REQUEST_OVERHEAD_BYTES
from slipstream.jobs.failure import Code
from slipstream.jobs.messages import DownloadTask, TaskAttributes, encode
from tests.client.loop import in_loop
from tests.jobs.lab import laboratory

TASK_BYTES = (16 << 20) - REQUEST_OVERHEAD_BYTES - 64
EXTRA = TaskAttributes(extra=b"x" * TASK_BYTES)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff" * TASK_BYTES, Code.SYSTEM_MALFORMED_TASK),
        (
            encode(DownloadTask(job_id="j-1", resource_id="a", url="ftp://x", attributes=EXTRA)),
            Code.DOWNLOAD_INVALID_URL,
        ),
        (
            encode(DownloadTask(job_id="j-1", resource_id="a", url="http://x/" + "y" * TASK_BYTES)),
            Code.DOWNLOAD_INVALID_URL,
        ),
    ],
    ids=["garbage", "extra", "url"],
)
@in_loop
async def test_a_task_that_is_too_large_for_a_dead_letter_is_one(tmp_path: Path, data: bytes, code: Code) -> None:
    async with laboratory(tmp_path) as lab:
        await lab.service.bus.publish("fetchbox.jobs.tasks", data, key="j-1")
        await lab.buried(1)
        [letter] = await lab.letters()
        assert (letter.task.job_id, letter.failure_code) == ("j-1", code)
        if letter.task.resource_id:
            assert (await lab.ended("j-1")).last_error_code == code
