"""HTTP on one port: `/v1` inside the connection, everything else through an ordinary ASGI application.

Turns requests into engine calls and deliveries into bytes. No rule about delivery lives here.
"""

from slipstream.server.limits import Limits
from slipstream.server.server import ServerConfig, serve

__all__ = ["Limits", "ServerConfig", "serve"]
