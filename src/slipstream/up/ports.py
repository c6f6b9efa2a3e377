"""Ports: whether one can be had, and any that is free."""

from __future__ import annotations

import contextlib
import errno
import socket
from typing import Self

LOCAL = "127.0.0.1"


class HeldPorts:
    """Nobody else gets them, nor they one another, until all are chosen, which is the end of the `with`.

    Example:
        with HeldPorts() as held:
            broker, jobs = held.any(), held.any()
    """

    def __init__(self) -> None:
        self._sockets = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._sockets.close()

    def hold(self, port: int, host: str = LOCAL) -> str:
        """Why it cannot be listened at; empty: it can."""
        probe = self._sockets.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: what has ended is no obstacle
        try:
            probe.bind((host, port))
        except OSError as error:
            return "another program has it" if error.errno == errno.EADDRINUSE else str(error.strerror)
        return ""

    def any(self) -> int:
        """One that is free."""
        probe = self._sockets.enter_context(socket.socket())
        probe.bind((LOCAL, 0))
        port: int = probe.getsockname()[1]
        return port


def free_port() -> int:
    """Nobody else is likely to take it before it is used."""
    with HeldPorts() as held:
        return held.any()
