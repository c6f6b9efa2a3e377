"""Replays over history: what tables have kept is sent once more, selected with Spark SQL, and each once even where who
sends it is killed.

Spark selects and composes, into files beside the tables; after that it is not needed any more. What is composed is
written to topics by commits (`sending`), or given to the router of slips through their store (`rerunning`). Reads
tables and never writes them, so it may run beside the pipeline.
"""

from slipstream.pipeline.replay.asked import Asked, SlipsAsked
from slipstream.pipeline.replay.errors import ReplayBusy, ReplayForgotten, ReplayUnfinished, ReplayUnreadable
from slipstream.pipeline.replay.folder import Replays
from slipstream.pipeline.replay.plan import Finished, PassedOver, Plan

__all__ = [
    "Asked",
    "Finished",
    "PassedOver",
    "Plan",
    "ReplayBusy",
    "ReplayForgotten",
    "ReplayUnfinished",
    "ReplayUnreadable",
    "Replays",
    "SlipsAsked",
]
