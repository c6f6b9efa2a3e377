"""Ports that can be had."""

from __future__ import annotations

import socket

import pytest

from slipstream.up.ports import HeldPorts, free_port


def test_a_port_that_somebody_has_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, HeldPorts() as held:
        assert held.hold(server.getsockname()[1]) == "another program has it"


def test_a_free_one_is_free_and_can_be_used_afterwards() -> None:
    port = free_port()
    with HeldPorts() as held:
        assert held.hold(port) == ""
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_what_is_held_nobody_else_gets() -> None:
    with HeldPorts() as held, socket.socket() as other:
        port = held.any()
        with pytest.raises(OSError, match="Address already in use"):
            other.bind(("127.0.0.1", port))


def test_an_address_that_is_not_here_is_said_in_the_words_of_the_system() -> None:
    with HeldPorts() as held:
        assert held.hold(8080, "192.0.2.1") == "Cannot assign requested address"
