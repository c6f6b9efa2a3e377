"""Runs the broker: turns calls into commands and effects into journal entries and deliveries, on an asyncio loop.

The server and the embedded bus stand on this. No delivery rule lives here, only when things happen: what is written
before it is answered, what is answered together, when the clock is looked at.
"""

from slipstream.engine.clock import Clock, ManualClock, Timekeeper
from slipstream.engine.condition import Condition
from slipstream.engine.dead_letters import (
    Redrive,
    Redrives,
    RedriveTask,
    Selection,
    dead_letter_topic,
    is_redriven,
    scan,
)
from slipstream.engine.engine import Engine, EngineConfig
from slipstream.engine.reading import first_offset, next_offset, read_slice
from slipstream.engine.storage import SliceableLog, Storage
from slipstream.engine.waiter import Answer, Sink, Waiter
from slipstream.engine.watchers import Watch

__all__ = [
    "Answer",
    "Clock",
    "Condition",
    "Engine",
    "EngineConfig",
    "ManualClock",
    "Redrive",
    "RedriveTask",
    "Redrives",
    "Selection",
    "Sink",
    "SliceableLog",
    "Storage",
    "Timekeeper",
    "Waiter",
    "Watch",
    "dead_letter_topic",
    "first_offset",
    "is_redriven",
    "next_offset",
    "read_slice",
    "scan",
]
