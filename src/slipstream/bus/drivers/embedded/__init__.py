"""The broker in this process: the same core the server runs, on the loop of the application, with nothing between."""

from slipstream.bus.drivers.embedded.driver import EmbeddedDriver

__all__ = ["EmbeddedDriver"]
