"""The URL of a download, as it came from a stranger: read once, strictly, before anything is asked of the network."""

from __future__ import annotations

import functools
import re
from typing import Literal

from yarl import URL

from slipstream.jobs.download.addresses import Addresses
from slipstream.jobs.failure import Code, TaskFailed

URL_LENGTH_MAX = 8192
HOST_LENGTH_MAX = 253
HOSTS_KEPT = 4096

# What the DNS may hold, after yarl has made ASCII of it. No percent signs: nobody knows who decodes them.
_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?", re.ASCII)
# A last label that is a number makes an IPv4 address of the whole, for `inet_aton`: 2130706433, 0x7f.1, 127.0.0.1.
_CONTROL = re.compile(r"[\x00-\x20\x7f]")
_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.ASCII)
_DOTTED_QUAD = re.compile(r"(?:(?:0|[1-9][0-9]{0,2})\.){3}(?:0|[1-9][0-9]{0,2})", re.ASCII)


def parse_target(text: str) -> URL:
    """A URL that can be asked for, with its userinfo, without its fragment. Raises TaskFailed."""
    if len(text) > URL_LENGTH_MAX:
        raise _invalid(f"it has {len(text)} characters; at most {URL_LENGTH_MAX} are allowed")
    if _CONTROL.search(text):
        raise _invalid("it has white space or control characters in it")
    try:
        url = URL(text)
    except ValueError as error:  # a UnicodeError of IDNA, too
        raise _invalid(_without_userinfo(str(error), text)) from None
    return check_target(url)


def follow(target: URL, location: str) -> URL:
    """Where a redirect leads. Userinfo in it is not followed: credentials come from the task or not at all."""
    location = location.strip(" ").replace(" ", "%20")  # common in what servers send
    if len(location) > URL_LENGTH_MAX or _CONTROL.search(location):
        raise _invalid(f"{shown(target)} redirects to what is no URL")
    try:
        url = target.join(URL(location))
    except ValueError:
        raise _invalid(f"{shown(target)} redirects to what is no URL") from None
    return without_userinfo(check_target(url))


def check_target(url: URL) -> URL:
    if url.scheme not in ("http", "https"):
        raise _invalid(f"it has the scheme {url.scheme!r}; only http and https are downloaded")
    host = url.raw_host
    if not host:
        raise _invalid("it has no host")
    if _kind(host) == "nonsense":
        raise _invalid("its host is no name that the DNS could know")
    if url.port == 0:
        raise _invalid("it has port 0")
    return url.with_fragment(None) if url.raw_fragment else url


def without_userinfo(url: URL) -> URL:
    return url if url.raw_user is None and url.raw_password is None else url.with_user(None)


def check_literal(url: URL, addresses: Addresses) -> None:
    """Refuses a host that is an address and may not be reached. aiohttp does not ask the resolver about these.

    Other spellings of an address than the canonical one are refused, whichever address they mean: that something has a
    reason to write 0x7f.1 is not worth the risk that two readers understand it in two ways.
    """
    host = url.raw_host or ""
    kind = _kind(host)
    if kind == "name":
        return
    if kind != "address":
        raise forbidden(f"{shown(url)}: {host} is an odd way to write an address; write it as 192.0.2.1")
    if refusal := addresses.refusal(host):
        raise forbidden(f"{shown(url)}: {refusal}")


def is_address(url: URL) -> bool:
    return _kind(url.raw_host or "") == "address"


def forbidden(message: str) -> TaskFailed:
    return TaskFailed(
        Code.DOWNLOAD_FORBIDDEN_ADDRESS, f"{message}; an operator may allow networks with JOBS_ALLOW_NETWORKS"
    )


def shown(url: URL) -> str:
    """For messages: no userinfo and no query, which may hold a signature that opens a door."""
    port = f":{url.explicit_port}" if url.explicit_port is not None else ""
    return f"{url.scheme}://{url.host_subcomponent}{port}{url.raw_path}"


def is_same_origin(one: URL, other: URL) -> bool:
    return (one.scheme, one.raw_host, one.port) == (other.scheme, other.raw_host, other.port)


@functools.lru_cache(HOSTS_KEPT)
def _kind(host: str) -> Literal["name", "address", "odd", "nonsense"]:
    if ":" in host or _DOTTED_QUAD.fullmatch(host):
        return "address"
    if len(host) > HOST_LENGTH_MAX or not _NAME.fullmatch(host):
        return "nonsense"
    return "odd" if _NUMBER.fullmatch(host) else "name"


def _invalid(why: str) -> TaskFailed:
    return TaskFailed(Code.DOWNLOAD_INVALID_URL, f"the URL cannot be downloaded: {why}")


def _without_userinfo(message: str, text: str) -> str:
    return "it cannot be read" if "@" in text else message
