"""What the suite asks of an engine under test."""

from __future__ import annotations

import abc
import contextlib
import secrets
import socket
from typing import Any


class Site(abc.ABC):
    """An engine that runs. Topics are told apart by name, so that one site serves many tests."""

    driver: str
    orders = True
    """Whether the engine under test keeps the order of messages."""
    counts_across_processes = True
    """Whether it counts attempts of a consumer that was killed."""
    keeps_before_subscribed = True
    """Whether a group sees what was published before it first subscribed."""
    shortest_deadline_s = 0.0
    """The shortest ack_deadline it takes."""
    dedupes = True
    """Whether a message_id is stored once."""
    is_server = True
    """Whether it lives outside the application, and can be stopped under it."""
    reads = True
    """Whether it keeps a log that can be read."""
    has_partitions = True
    """Whether a topic can have more than one."""
    limits_bytes = True
    """Whether a topic can be limited to so many bytes."""
    keeps_for_ever = True
    """Whether a topic can be without a limit of time."""
    adjusts_retention = True
    """Whether that limit can be changed."""

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """For `open_bus(**site.settings())`."""

    @abc.abstractmethod
    def environment(self) -> dict[str, str]:
        """The same for another process."""

    @abc.abstractmethod
    def stop_server(self) -> None:
        """Without a word, as by kill -9; returns when it is gone. What it had confirmed it still has when it is
        back."""

    @abc.abstractmethod
    def start_server(self) -> None:
        """Again, at the same address; returns when it answers."""

    @abc.abstractmethod
    def ensure_started(self) -> None:
        """Start the server if a test has left it stopped."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it and cleans up."""


def free_port() -> int:
    """Below those that the kernel gives to outgoing connections, one of which could else take it while a server that is
    being restarted does not have it."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)  # not `random`, which begins alike in all test processes
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
