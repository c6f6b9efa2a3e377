"""What the doctor says about the directory of an embedded broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.broker import Topic
from slipstream.bus.drivers.driver import Finding
from slipstream.bus.drivers.embedded.broker import MEMORY, DirectoryBusy
from slipstream.bus.errors import BusUnavailable
from slipstream.bus.names import DEAD_LETTER_SUFFIX
from slipstream.bus.settings import BusSettings
from slipstream.plurals import counted
from slipstream.store.lock import holder_address

if TYPE_CHECKING:
    from slipstream.bus.drivers.embedded.driver import EmbeddedDriver


async def examination(driver: EmbeddedDriver, settings: BusSettings, prefix: str) -> AsyncIterator[Finding]:
    """Opens the directory, which must be free for that."""
    if settings.driver == "memory" or settings.data.startswith(MEMORY):
        yield Finding("ok", "storage", "memory: everything is gone when the process ends")
        return
    directory = Path(settings.data).absolute()  # noqa: ASYNC240 - asks no disk
    if not await asyncio.to_thread(directory.exists):
        yield Finding("ok", "directory", f"{directory} does not exist yet, and is made when the bus is opened")
        return
    try:
        await driver.open()
    except DirectoryBusy as error:
        if holder_address(directory):
            yield Finding("problem", "directory", str(error))
            return
        yield Finding("warning", "directory", f"the broker is inside an application: {error}")
        return
    except BusUnavailable as error:
        yield Finding("problem", "directory", str(error))
        return
    try:
        yield Finding("ok", "directory", f"{directory} is free, and could be opened")
        topics = driver.native.broker.state.topics
        matching = [topic for name, topic in sorted(topics.items()) if name.startswith(prefix)]
        yield Finding("ok", "topics", f"{len(matching)}, with {counted(sum(map(_kept, matching)), 'message')}")
        for topic in matching:
            if topic.name.endswith(DEAD_LETTER_SUFFIX) and _kept(topic):
                yield Finding("warning", "dead letters", f"{_kept(topic):,} in {topic.name}")
            for group in topic.groups.values():
                lag = sum(progress.lag for progress in group.progress)
                unfinished = f"{counted(lag, 'message')} of {topic.name} not finished"
                yield Finding("ok", f"group {group.name}", unfinished if lag else f"has all of {topic.name}")
    finally:
        await driver.close()


def _kept(topic: Topic) -> int:
    return sum(partition.committed - partition.first_index for partition in topic.partitions)
