"""Where Spark is: on this machine, at the master of a cluster, or behind Spark Connect."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Iterable
from urllib.parse import urlsplit

from slipstream.pipeline.errors import InvalidPipeline, SparkUnreachable

CONNECT_PORT = 15002
MASTER_PORT = 7077
REACH_TIMEOUT_S = 5.0

_LOCAL = re.compile(r"local(\[[^\]]*\])?")
_MASTERS = re.compile(r"local(\[[^\]]*\])?|local-cluster\[.+\]|spark://.+|k8s://.+|yarn")


def is_local(master: str) -> bool:
    """All of Spark is in processes that this one starts, and finds what this one finds."""
    return _LOCAL.fullmatch(master) is not None


def check_place(master: str, remote: str) -> None:
    """Raises InvalidPipeline for what is no address, and SparkUnreachable where nobody listens: Spark itself takes a
    minute to say so, in the words of two languages."""
    if remote:
        if not remote.startswith("sc://"):
            raise InvalidPipeline(
                f"--remote {shown(remote)}: an address of Spark Connect is sc://HOST or sc://HOST:PORT"
            )
        place = shown(remote).removeprefix("sc://").rstrip("/")
        _check_listens([place], CONNECT_PORT, f"server of Spark Connect at {shown(remote)}")
    elif not _MASTERS.fullmatch(master):
        raise InvalidPipeline(
            f"--master {master}: Spark runs at local[*], spark://HOST:PORT, k8s://https://HOST:PORT or yarn"
        )
    elif master.startswith("spark://"):
        _check_listens(master.removeprefix("spark://").split(","), MASTER_PORT, f"master of Spark at {master}")


def _check_listens(places: Iterable[str], port: int, what: str) -> None:
    """One of them is enough: a standby master has another's address beside its own."""
    reasons = []
    for place in places:
        address = urlsplit(f"//{place}")
        try:
            number = address.port or port
        except ValueError as error:
            raise InvalidPipeline(f"{place}: {error}; an address is HOST:PORT") from error
        try:
            socket.create_connection((address.hostname or "", number), REACH_TIMEOUT_S).close()
        except OSError as error:
            reasons.append(str(error))
        else:
            return
    raise SparkUnreachable(f"there is no {what}: {'; '.join(reasons)}. Start it, or name another place")


def shown(remote: str) -> str:
    """An address of Spark Connect without what is secret in it: tokens are parameters, behind the first semicolon, and
    somebody may have put a password before the host."""
    scheme, separator, rest = remote.partition(";")[0].partition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def options_of(conf: str) -> dict[str, str]:
    """`spark.executor.memory=4g spark.archives='a.tar.gz#a'` as Spark's options. Raises InvalidPipeline."""
    try:
        words = shlex.split(conf)
    except ValueError as error:
        raise InvalidPipeline(f"PIPELINE_SPARK_CONF cannot be taken apart: {error}") from error
    options = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name.startswith("spark."):
            raise InvalidPipeline(f"--conf {word}: an option of Spark is spark.NAME=VALUE")
        options[name] = value
    return options
