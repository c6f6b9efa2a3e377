"""Whether a browser asks on behalf of a page that did not come from here: the same for the broker and the console."""

from __future__ import annotations

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""What a page may ask of anybody: it does not get to see the answer."""

REFUSAL = "a page of another origin has asked for this: open the console itself"


def is_foreign(site: str, origin: str, host: str) -> bool:
    """From the headers Sec-Fetch-Site, Origin and Host, empty where they are not there. Programs send neither of the
    first two.

    A browser that says where the page came from knows better than we do: behind a proxy, Host is not what it has
    asked for. It says so on https and to this machine; elsewhere there is Origin alone.

    Example:
        is_foreign("", "http://127.0.0.1:8080", "127.0.0.1:8080")
    """
    if site:
        return site not in {"same-origin", "none"}
    return bool(origin) and origin.partition("://")[2] != host
