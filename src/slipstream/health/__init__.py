"""Whether a part is alive and takes work, for who looks after it: a small HTTP server in a thread of its own.

For parts that have no port otherwise: routers and workers of slips, workers of jobs, the pipeline. In a thread, so that
it answers also while an event loop is blocked, or Spark computes. The commands start it; a part itself says only how it
is. It knows no room but the settings of the environment.
"""

from slipstream.health.health import Answer, Health
from slipstream.health.pulse import beating
from slipstream.health.server import CannotListen, answering_at
from slipstream.health.settings import HealthSettings, describe_settings, load_settings

__all__ = [
    "Answer",
    "CannotListen",
    "Health",
    "HealthSettings",
    "answering_at",
    "beating",
    "describe_settings",
    "load_settings",
]
