"""The header fields of a request: what the task wants to send, without what is not the task's to say."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import unquote

from multidict import CIMultiDict
from yarl import URL

from slipstream import __version__
from slipstream.jobs.failure import Code, TaskFailed

DEFAULTS = {"User-Agent": f"slipstream/{__version__}", "Accept-Encoding": "identity"}
"""A download is wanted as it is: no encoding, unless the task asks for one."""

OURS = frozenset(
    {
        "connection",
        "content-length",
        "expect",
        "host",  # comes from the URL: another would ask a front for what hides behind it
        "if-range",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "range",  # a part would be stored as if it were the whole
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""About the connection, or about how we download. They are dropped."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_FORBIDDEN_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CREDENTIAL = re.compile(r"auth|cookie|token|secret|password|credential|session|signature|key", re.IGNORECASE)


def question_headers(headers: Iterable[tuple[str, str]], target: URL) -> CIMultiDict[str]:
    """What a task sends to its URL. Userinfo of the URL becomes Authorization, if there is none. Raises TaskFailed."""
    fields: CIMultiDict[str] = CIMultiDict()
    for name, value in headers:
        check_field(name, value)
        if name.lower() not in OURS:
            fields.add(name, value)
    if target.raw_user is not None and "Authorization" not in fields:
        userinfo = f"{unquote(target.raw_user)}:{unquote(target.raw_password or '')}"
        fields["Authorization"] = "Basic " + base64.b64encode(userinfo.encode()).decode()
    return fields


def check_field(name: str, value: str) -> None:
    """Raises TaskFailed for what would not be one header field: a line break smuggles in another, or a request."""
    if not _NAME.fullmatch(name):
        raise TaskFailed(Code.DOWNLOAD_INVALID_HEADER, f"{name[:100]!r} cannot be the name of a header")
    if _FORBIDDEN_IN_VALUE.search(value):
        raise TaskFailed(
            Code.DOWNLOAD_INVALID_HEADER, f"the value of the header {name[:100]} has control characters in it"
        )


def without_credentials(fields: CIMultiDict[str]) -> CIMultiDict[str]:
    """What may be told to another origin than the task named. Names such as X-Api-Key count, not the standard ones
    only: what leaks cannot be called back."""
    return CIMultiDict((name, value) for name, value in fields.items() if not _CREDENTIAL.search(name))
