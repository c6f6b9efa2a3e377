"""Runs the broker: turns calls into commands and effects into journal entries and deliveries, on an asyncio loop.

The server and the embedded bus stand on this. No delivery rule lives here, only when things happen: what is written
before it is answered, what is answered together, when the clock is looked at.
"""

from slipstream.engine.clock import Clock, ManualClock, Timekeeper
from slipstream.engine.engine import Engine, EngineConfig, Sink, Waiter
from slipstream.engine.storage import SliceableLog, Storage

__all__ = [
    "Clock",
    "Engine",
    "EngineConfig",
    "ManualClock",
    "Sink",
    "SliceableLog",
    "Storage",
    "Timekeeper",
    "Waiter",
]
