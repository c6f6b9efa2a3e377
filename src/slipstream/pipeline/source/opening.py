"""From options to a log."""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.pipeline.source.errors import ConnectorError
from slipstream.pipeline.source.log import Log
from slipstream.pipeline.source.options import Options, connection_options


def open_log(options: Mapping[str, str]) -> Log:
    """The log that options of the connector speak of, in this process. Close it, or use it as a context manager."""
    return log_of(connection_options(options))


def log_of(options: Options) -> Log:
    if options.bus == "nats":
        return _nats_log(options)
    # Half a second that the processes in which Spark only makes plans need not pay.
    from slipstream.pipeline.source.broker_log import BrokerLog  # noqa: PLC0415

    return BrokerLog(options.url, fail_on_data_loss=options.fail_on_data_loss)


def _nats_log(options: Options) -> Log:
    try:
        from slipstream.pipeline.source.nats_log import NatsLog  # noqa: PLC0415 - of another extra
    except ImportError as error:
        raise ConnectorError("bus=nats needs nats-py, here and on every worker: install slipstream[nats]") from error
    return NatsLog(options.nats, fail_on_data_loss=options.fail_on_data_loss)
