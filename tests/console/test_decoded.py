"""Messages of the streams of jobs, decoded."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from slipstream.console import Sources, create_console
from slipstream.console.decoded import Decoder
from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobStatus, LogLevel, encode
from tests.client.loop import in_loop
from tests.console.site import Numbers, ask, listening

TASK = DownloadTask(job_id="j-1", resource_id="r-1", url="http://127.0.0.1/a")

GOOD = {
    "fetchbox.jobs.tasks": TASK,
    "fetchbox.jobs.status": JobStatus(job_id="j-1", resources_total=3),
    "fetchbox.jobs.logs": JobLog(job_id="j-1", level=LogLevel.LOG_LEVEL_ERROR, message="gone: ü"),
    "fetchbox.jobs.dlq": DeadLetterTask(task=TASK, failure_code="DOWNLOAD_404"),
    "dlq.fetchbox.jobs.tasks": TASK,
    "dev.fetchbox.jobs.tasks": TASK,
    "dlq.dev.fetchbox.jobs.logs": JobLog(job_id="j-1"),
}


async def decoded(topic: str, value: str) -> tuple[int, Any]:
    console = create_console(Sources(Numbers(), jobs=None, more=[Decoder("fetchbox", "dev.")]))
    async with listening(console) as url:
        status, answer, _ = await ask(f"{url}/v2/decoded", "POST", json={"topic": topic, "value": value})
    return status, answer


@pytest.mark.parametrize("topic", GOOD)
def test_each_stream_has_its_type(topic: str) -> None:
    @in_loop
    async def story() -> None:
        message = GOOD[topic]
        status, answer = await decoded(topic, base64.b64encode(encode(message)).decode())
        assert (status, answer["type"]) == (200, type(message).__name__)
        inner = answer["message"].get("task", answer["message"])
        assert inner["job_id"] == "j-1"

    story()


@pytest.mark.parametrize(
    ("topic", "value", "status", "words"),
    [
        ("orders", "", 404, "nobody knows what the messages of orders are made of"),
        ("fetchbox.jobs.tasks", "no base64!", 400, "value is not base64"),
        ("fetchbox.jobs.tasks", base64.b64encode(b"\x08\xff").decode(), 400, "are no DownloadTask"),
    ],
)
def test_what_cannot_be_decoded_is_said(topic: str, value: str, status: int, words: str) -> None:
    @in_loop
    async def story() -> None:
        found, answer = await decoded(topic, value)
        assert found == status
        assert words in answer["message"]

    story()
