"""The console: a page in the browser for whoever looks after all of it, and the calls that the page makes.

One ASGI application (`create_console`). It runs in `slipstream console`, with everything it can be told about, and in
`slipstream serve`, with the broker alone; there it may also be another process's, which `Forwarder` asks. It knows the
broker by what `/v2` says or by the bus, slips by their store, jobs by their service and tables by their folder; it
changes nothing but through those.
"""

from slipstream.console.app import Console, FarConsole, create_console
from slipstream.console.forward import Forwarder
from slipstream.console.settings import ConsoleSettings, InvalidConsole, load_settings
from slipstream.console.sources import Sources

__all__ = [
    "Console",
    "ConsoleSettings",
    "FarConsole",
    "Forwarder",
    "InvalidConsole",
    "Sources",
    "create_console",
    "load_settings",
]
