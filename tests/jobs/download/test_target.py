"""URLs of strangers: what is refused before anything is asked of the network."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.download.target import check_literal, follow, parse_target, shown
from slipstream.jobs.failure import Code, TaskFailed

ODD = [
    "http://2130706433/", "http://0x7f.1/", "http://0x7f000001/", "http://127.1/", "http://0177.0.0.1/", "http://0/",
    "http://127.0.0.1/", "http://127.0.0.1./", "http://[::ffff:127.0.0.1]/", "http://[::1]/", "http://[::127.0.0.1]/",
    "http://①②⑦.0.0.1/", "http://\uff11\uff12\uff17.0.0.1/", "http://127。0。0。1/", "http://1.2.3.4.5/", "http://8.8.8.8./",
    "http://010.8.8.8/", "http://8.8.8.256/", "http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://0x/",
    "http://user:secret@169.254.169.254/latest", "http://a.0x7f/",
]  # fmt: skip


@pytest.mark.parametrize("text", ODD)
def test_no_spelling_of_an_inside_address_gets_through(text: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        check_literal(parse_target(text), Addresses())
    assert caught.value.code in (Code.DOWNLOAD_FORBIDDEN_ADDRESS, Code.DOWNLOAD_INVALID_URL)
    assert not caught.value.is_retryable
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "", "ftp://example.org/", "file:///etc/passwd", "//example.org/", "example.org", "http://", "http:///x",
        "data:,x",        "http://h:99999/", "http://h:0/", "http://[::1/", "http://%31%32%37.0.0.1/", "http://a b/", "http://h\r\n.org/",
        "http://evil.example\\@127.0.0.1/", "http://a..b/", "http://" + "a" * 300 + "/", "http://h/" + "x" * 9000,
        "http://h/\tx", "http://foo%00.org/", "http://-/\x00",
    ],
)  # fmt: skip
def test_what_is_no_url_to_download_is_refused(text: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        parse_target(text)
    assert caught.value.code is Code.DOWNLOAD_INVALID_URL
    assert not caught.value.is_retryable


def test_names_and_public_addresses_pass() -> None:
    for text in ("http://example.org/", "https://a_b.example.:8443/x?y", "http://8.8.8.8/", "http://ä.example/"):
        check_literal(parse_target(text), Addresses())


def test_the_fragment_is_not_sent() -> None:
    assert str(parse_target("http://example.org/a?b#c")) == "http://example.org/a?b"


def test_what_is_shown_has_no_secrets() -> None:
    assert shown(URL("http://user:password@example.org:81/a?signature=abc")) == "http://example.org:81/a"
    assert shown(URL("http://[2606:4700::1]/a")) == "http://[2606:4700::1]/a"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/b", "http://example.org/b"),
        ("c?d=1", "http://example.org/x/c?d=1"),
        ("//other.example/y", "http://other.example/y"),
        ("https://other.example", "https://other.example"),
        (" /with space ", "http://example.org/with%20space"),
        ("http://user:secret@other.example/", "http://other.example/"),
    ],
)
def test_a_redirect_is_followed_from_where_it_was_given(location: str, expected: str) -> None:
    assert follow(URL("http://example.org/x/a"), location) == URL(expected)


@pytest.mark.parametrize(
    "location", ["ftp://h/", "javascript:alert(1)", "http://[::1", "file:///etc/passwd", "a\nb", "http://\udcff/"]
)
def test_a_redirect_elsewhere_than_http_is_refused(location: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        follow(URL("http://example.org/x/a"), location)
    assert caught.value.code is Code.DOWNLOAD_INVALID_URL


@given(st.text(max_size=60))
def test_any_text_is_a_url_or_is_refused(text: str) -> None:
    for candidate in (text, f"http://{text}", f"http://h/{text}"):
        try:
            target = parse_target(candidate)
        except TaskFailed:
            continue
        assert target.scheme in ("http", "https")
        assert target.raw_host
        assert target.raw_host.isascii()
        assert shown(target).startswith(target.scheme)
