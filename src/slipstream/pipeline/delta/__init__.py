"""Delta tables: files that tasks write, and commits by which the driver makes them part of a table, once.

Knows folders, Parquet and Delta's log; it does not know what is in a table. `files` and `actions` run in Spark's tasks;
`DeltaFolder` is for the driver alone.
"""

from slipstream.pipeline.delta.files import DateFiles, Written
from slipstream.pipeline.delta.fold import Fold, Latest
from slipstream.pipeline.delta.folder import DeltaFolder, Stamp

__all__ = ["DateFiles", "DeltaFolder", "Fold", "Latest", "Stamp", "Written"]
