from __future__ import annotations

import urllib.parse

import pytest

from slipstream.listening import listen, url_of


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_free_port_is_known_before_anything_is_announced(host: str) -> None:
    with listen(host, 0) as listener:
        url = urllib.parse.urlsplit(url_of(listener))
        assert (url.hostname, url.port) == (host, listener.getsockname()[1])


def test_a_port_in_use_is_said_at_once() -> None:
    with listen("127.0.0.1", 0) as listener, pytest.raises(OSError, match="in use"):
        listen("127.0.0.1", listener.getsockname()[1])
