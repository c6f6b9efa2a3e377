"""Ports that can be had."""

from __future__ import annotations

import socket

from slipstream.up.ports import free_port, why_not


def test_a_port_that_somebody_has_is_said_to_be() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert why_not(server.getsockname()[1]) == "another program has it"


def test_a_free_one_is_free() -> None:
    assert why_not(free_port()) == ""


def test_an_address_that_is_not_here_is_said_in_the_words_of_the_system() -> None:
    assert why_not(8080, "192.0.2.1") == "Cannot assign requested address"
