"""Tells what happens to a task, on `jobs.logs`."""

from __future__ import annotations

import time
from collections.abc import Mapping

from slipstream.bus import Bus
from slipstream.jobs.ledger.telling import STEP
from slipstream.jobs.messages import DownloadTask, JobLog, LogLevel, encode
from slipstream.jobs.publishing import attributes_of


class Reporter:
    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic

    async def mention(
        self,
        task: DownloadTask,
        step: str,
        text: str,
        fields: Mapping[str, object],
        level: LogLevel = LogLevel.LOG_LEVEL_INFO,
    ) -> None:
        """On its way when this returns: a step on which nothing depends."""
        await self._bus.send(
            self._topic,
            _encoded(task, step, text, level, fields),
            attributes_of("JobLog", task.job_id),
            task.job_id,
        )

    async def tell(
        self,
        task: DownloadTask,
        step: str,
        text: str,
        fields: Mapping[str, object],
        level: LogLevel = LogLevel.LOG_LEVEL_INFO,
    ) -> None:
        """Safe in the stream when this returns: what became of the task. Raises BusError."""
        await self._bus.publish(
            self._topic,
            _encoded(task, step, text, level, fields),
            attributes_of("JobLog", task.job_id),
            task.job_id,
        )


def _encoded(task: DownloadTask, step: str, text: str, level: LogLevel, fields: Mapping[str, object]) -> bytes:
    return encode(
        JobLog(
            job_id=task.job_id,
            resource_id=task.resource_id,
            level=level,
            message=text,
            fields={STEP: step, **{name: str(value) for name, value in fields.items() if value not in {"", None}}},
            timestamp_ms=time.time_ns() // 1_000_000,
            trace_id=task.trace_id,
        )
    )
