"""The engine of a bus whose settings name none: the server that runs here, or else the embedded broker.

One rule for programs and commands, in this order (docs/adr/0045-programs-find-the-running-server.md):

1. `SLIPSTREAM_URL` names a server: that one, whether it answers or not.
2. A server runs on the data directory: that one. It has written its address into the directory.
3. `SLIPSTREAM_DATA` names no directory, and a Slipstream broker answers at the usual address: that one.
4. Otherwise the embedded broker, on the data directory.
"""

from __future__ import annotations

import http.client
import logging
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from slipstream.api.server import ServerInfo
from slipstream.bus.errors import BusUnavailable
from slipstream.store.lock import holder_address

if TYPE_CHECKING:
    from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_S = 2.0
"""How long a program that has accepted a connection may take to say what it is."""


def resolved(settings: BusSettings, named: Collection[str]) -> BusSettings:
    """Return the settings with an engine. `named` are the settings that the program or the environment has set.

    Raises BusUnavailable if it cannot be told whether a broker runs at the usual address.
    """
    if "url" in named:
        return replace(settings, driver="http")
    if address := holder_address(Path(settings.data)):
        log.info("the bus is the server at %s, which runs on %s", address, settings.data)
        return replace(settings, driver="http", url=address)
    if "data" not in named and _is_broker(settings.url):
        log.info("the bus is the server at %s; MESSAGE_BUS_DRIVER=embedded keeps it in this process", settings.url)
        return replace(settings, driver="http")
    return replace(settings, driver="embedded")


def _is_broker(url: str) -> bool:
    """Return whether a Slipstream broker answers there. Raises BusUnavailable for a program that says nothing."""
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_TIMEOUT_S)
    try:
        connection.connect()
    except OSError:
        return False
    try:
        connection.request("GET", "/v2/server", headers={"Accept": "application/json"})
        answer = connection.getresponse()
        info = msgspec.json.decode(answer.read(), type=ServerInfo)
    except TimeoutError as error:
        raise BusUnavailable(
            f"a program at {url} accepts connections and does not answer: if it is a Slipstream broker, look at its "
            "log; otherwise set MESSAGE_BUS_DRIVER=embedded, or SLIPSTREAM_URL to another server"
        ) from error
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, UnicodeDecodeError):
        return False
    finally:
        connection.close()
    return info.bus == "slipstream"
