"""The tables: what each is, its columns, and the functions from frames to frames that say what is in it.

A function takes rows of the tables that a batch of messages went into and gives rows of its own table; the table's fold
puts them together with what is there. The same functions serve a stream, a batch and a table that is made anew. Nothing
here reads or writes; that is for `delta` and for the queries.
"""

from slipstream.pipeline.tables.jobs import (
    DEAD_LETTER_CAUSES,
    DEAD_LETTERS,
    DOWNLOAD_TASKS,
    JOB_LOGS,
    JOB_SNAPSHOTS,
    JOB_STATUS,
    JOB_THROUGHPUT,
    TENANT_USAGE,
)
from slipstream.pipeline.tables.lineage import RUN_LINEAGE
from slipstream.pipeline.tables.messages import MESSAGES, QUARANTINE
from slipstream.pipeline.tables.slips import SLIP_EVENTS, SLIP_RUNS, SLIP_STEPS, STEP_METRICS, STUCK_SLIPS
from slipstream.pipeline.tables.table import Layer, QueryName, Table

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        MESSAGES,
        DOWNLOAD_TASKS,
        JOB_STATUS,
        JOB_LOGS,
        DEAD_LETTERS,
        SLIP_EVENTS,
        SLIP_STEPS,
        SLIP_RUNS,
        QUARANTINE,
        JOB_SNAPSHOTS,
        JOB_THROUGHPUT,
        STEP_METRICS,
        DEAD_LETTER_CAUSES,
        TENANT_USAGE,
        RUN_LINEAGE,
        STUCK_SLIPS,
    )
}

__all__ = ["TABLES", "Layer", "QueryName", "Table"]
