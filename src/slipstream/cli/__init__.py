"""The command line. Each command only wires things together; what it does lives in the room it belongs to."""

from slipstream.cli.main import main

__all__ = ["main"]
