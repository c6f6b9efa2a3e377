"""Ports: whether one can be had, and any that is free."""

from __future__ import annotations

import errno
import socket


def why_not(port: int, host: str = "127.0.0.1") -> str:
    """Empty: it can be listened at."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what has ended is no obstacle
        try:
            probe.bind((host, port))
        except OSError as error:
            return "another program has it" if error.errno == errno.EADDRINUSE else str(error.strerror)
    return ""


def free_port(host: str = "127.0.0.1") -> int:
    """Nobody else is likely to take it before it is used."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port
