"""The driver for a Slipstream server: `slipstream serve`, over HTTP. It stands on `slipstream.client` and adds no
protocol of its own; whatever else speaks to the server sees the same topics and groups."""

from slipstream.bus.drivers.http.driver import HttpDriver

__all__ = ["HttpDriver"]
