"""The connector: how Spark reads topics and writes them.

A `Log` is what is read, of the broker or of a JetStream stream, in any process; `data_source` and what is beside it
make a data source of it. Nothing here leases or acks: who reads a topic for a table takes it from nobody.
"""

from slipstream.pipeline.source.columns import LOG_SCHEMA
from slipstream.pipeline.source.errors import ConnectorError, DataLost, InvalidOption, Lost
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.opening import open_log
from slipstream.pipeline.source.range import Range

__all__ = ["LOG_SCHEMA", "ConnectorError", "DataLost", "InvalidOption", "Log", "Lost", "Range", "open_log"]
