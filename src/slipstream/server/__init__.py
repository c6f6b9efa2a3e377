"""HTTP on one port: calls that carry messages inside the connection, the rest through an ordinary ASGI application.

Turns requests into engine calls and deliveries into bytes. No rule about delivery lives here.
"""

from slipstream.limits import Limits
from slipstream.server.server import Server, ServerConfig, listen, serve

__all__ = ["Limits", "Server", "ServerConfig", "listen", "serve"]
