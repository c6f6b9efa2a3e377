"""Whether a page of somebody else's asks."""

from __future__ import annotations

import pytest

from slipstream.origins import is_foreign

HERE = "127.0.0.1:8080"


@pytest.mark.parametrize(
    ("site", "origin", "host", "foreign"),
    [
        ("", "", HERE, False),
        ("", f"http://{HERE}", HERE, False),
        ("", "http://elsewhere", HERE, True),
        ("", "http://127.0.0.1:3000", HERE, True),
        ("", "null", HERE, True),
        ("same-origin", f"http://{HERE}", HERE, False),
        ("none", "", HERE, False),
        ("cross-site", "http://elsewhere", HERE, True),
        ("same-site", "http://127.0.0.1:3000", HERE, True),
        ("same-site", f"http://{HERE}", HERE, True),
    ],
)
def test_who_asks_is_told_by_what_browsers_say(site: str, origin: str, host: str, foreign: bool) -> None:
    assert is_foreign(site, origin, host) == foreign


def test_behind_a_proxy_the_browser_is_believed_though_host_is_another() -> None:
    assert not is_foreign("same-origin", "https://10.0.0.5:8443", HERE)
