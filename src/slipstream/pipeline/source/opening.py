"""From options to a log."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.pipeline.source.broker_log import BrokerLog
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.options import Options, connection_options


def open_log(options: Mapping[str, str]) -> Log:
    """The log that options of the connector speak of, in this process. Close it, or use it as a context manager."""
    return log_of(connection_options(options))


def log_of(options: Options) -> Log:
    return BrokerLog(options.url, fail_on_data_loss=options.fail_on_data_loss)
