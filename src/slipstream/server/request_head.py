"""The head of a request: its target, Host, framing and the few headers that the server uses.

The parser checks the syntax. This module checks what RFC 9112 asks of a server beyond that, and refuses heads that
different programs on the way could understand differently.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from slipstream.origins import is_foreign

Types: TypeAlias = tuple[bytes, bytes, bytes]
"""Content-Type, Accept and Content-Encoding, as they were sent."""

NO_TYPES: Types = (b"", b"", b"")

_ABSOLUTE = re.compile(rb"(?i:https?)://([^/?]*)(.*)", re.DOTALL)
_HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([^ \r\n]+) HTTP/1\.[01]\r?\n")


class HeadRefused(Exception):
    """A head that the server does not accept, with the status and the code of the answer."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


class RequestHead(msgspec.Struct, frozen=True, kw_only=True):
    """The headers of one request that the server uses."""

    types: Types = NO_TYPES
    length: int | None = None
    """The value of Content-Length."""
    request_id: bytes | None = None
    expects_continue: bool = False
    is_foreign: bool = False
    """A browser sends the request on behalf of a page of another origin."""
    is_plain: bool = True
    """The bytes of the head say everything, so an equal head means the same."""


NO_HEAD = RequestHead()


def read_head(version: str, authority: bytes | None, headers: Iterable[tuple[bytes, bytes]]) -> RequestHead:
    """Return what the headers say; `authority` is that of an absolute target. Raises HeadRefused."""
    content_type = accept = content_encoding = site = origin = expectation = b""
    length = request_id = None
    hosts: list[bytes] = []
    codings: list[bytes] = []
    for name, value in headers:
        match name.lower():
            case b"content-type":
                content_type = value
            case b"accept":
                accept = value
            case b"content-encoding":
                content_encoding = value
            case b"content-length":
                length = int(value)
            case b"sec-fetch-site":
                site = value
            case b"origin":
                origin = value
            case b"host":
                hosts.append(value)
            case b"x-request-id":
                request_id = value[:200]
            case b"transfer-encoding":
                codings.append(value)
            case b"expect":
                expectation = value.lower()
    _check_host(version, hosts)
    _check_codings(version, codings)
    if expectation not in {b"", b"100-continue"}:
        raise HeadRefused(417, "INVALID_ARGUMENT", "the only expectation this server meets is 100-continue")
    # The authority of an absolute target wins over Host (RFC 9112, 3.2.2).
    host = authority if authority is not None else b"".join(hosts)
    return RequestHead(
        types=(content_type, accept, content_encoding),
        length=length,
        request_id=request_id,
        expects_continue=bool(expectation),
        is_foreign=is_foreign(site.decode("latin-1"), origin.decode("latin-1"), host.decode("latin-1")),
        is_plain=request_id is None and not codings and not expectation,
    )


def split_target(target: bytes) -> tuple[bytes, bytes | None]:
    """Return path and query of a request target, and the authority if it is in absolute form."""
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        return target, None
    authority, path = absolute.groups()
    return (path if path.startswith(b"/") else b"/" + path), authority


def unknown_method(data: bytes) -> tuple[str, bytes] | None:
    """Return method and path if `data` begins with a request line. The parser refuses methods it does not know."""
    line = _REQUEST_LINE.match(data)
    if line is None:
        return None
    method, target = line.groups()
    return method.decode(), split_target(target)[0].partition(b"?")[0]


def _check_host(version: str, hosts: Sequence[bytes]) -> None:
    """RFC 9112, 3.2: programs that choose different ones of two hosts disagree about whom a request is for."""
    if not hosts and version != "1.0":
        raise HeadRefused(400, "INVALID_ARGUMENT", "the request has no Host header, which every request must have")
    if len(hosts) > 1:
        raise HeadRefused(400, "INVALID_ARGUMENT", f"the request has {len(hosts)} Host headers; send one")
    if hosts and not _HOST.fullmatch(hosts[0]):
        raise HeadRefused(400, "INVALID_ARGUMENT", "the Host header is not a host name with an optional port")


def _check_codings(version: str, codings: Sequence[bytes]) -> None:
    """RFC 9112, 6.1: a coding that is not undone leaves something else in the body than the client sent."""
    if not codings:
        return
    names = [name.strip().lower() for name in b",".join(codings).split(b",")]
    if version == "1.0" or names.count(b"chunked") > 1:
        raise HeadRefused(400, "INVALID_ARGUMENT", "Transfer-Encoding must be chunked, once, and over HTTP/1.1")
    if names != [b"chunked"]:
        raise HeadRefused(501, "UNIMPLEMENTED", "the only transfer coding this server understands is chunked")
