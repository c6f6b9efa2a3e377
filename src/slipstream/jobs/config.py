"""The configuration of job types, storages and proxies: a TOML file, and the environment over it.

A variable `JOBS__TYPES__PHOTOS__STORAGE=archive` stands for `storage = "archive"` in `[types.photos]`: the parts of the
path with two underscores between them, in upper case, and `_` for every character that a variable cannot have.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from slipstream.jobs.download.limits import HostLimit
from slipstream.jobs.download.proxies import Pools
from slipstream.jobs.errors import InvalidJobs
from slipstream.jobs.keys import check_prefix, metadata_trouble

PREFIX = "JOBS__"
TYPE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
"""Part of object keys and of logs."""
LIMIT_MAX = 1_000_000
"""Largest limit of a host."""


class JobType(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[types.NAME]`: what holds for all jobs of a type."""

    handler: str = ""
    """`module:Class`, or the name of an entry point; by default the entry point of the type's name, if there is one."""
    headers: dict[str, str] = {}
    """Sent with every request; those of a resource win."""
    storage: str = ""
    """One of `[storages]`; by default JOBS_STORAGE."""
    key_prefix: str = ""
    """Where in it; by default the type and the job's id."""
    metadata: dict[str, str] = {}
    """Of the objects, where a storage keeps such."""
    decode: bool = True
    """Undo the Content-Encoding of what is downloaded. False: store the bytes that the server sent."""
    proxies: str = ""
    """One of `[proxies]`; by default none."""
    proxy_fallbacks: list[str] = []


class StorageConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[storages.NAME]`"""

    url: str
    """A folder, or s3://bucket, gs://bucket, az://container."""
    options: dict[str, str | bool | int] = {}
    """The object store's own, such as endpoint, region, access_key_id."""


class ProxyPool(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`[proxies.NAME]`"""

    urls: list[str]
    fallbacks: list[str] = []
    """Pools that are tried after this one, in this order."""


class JobConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    types: dict[str, JobType] = {}
    """Those that are taken; without any, all are, with the default handler."""
    accept_unlisted_types: bool = False
    """All others too, where some are listed."""
    hosts: dict[str, HostLimit] = {}
    """By host name, or pattern such as `*.example.org`."""
    storages: dict[str, StorageConfig] = {}
    proxies: dict[str, ProxyPool] = {}

    def type(self, name: str) -> JobType | None:
        """None for one that is not taken."""
        listed = self.types.get(name)
        if listed is not None or (self.types and not self.accept_unlisted_types):
            return listed
        return UNLISTED if TYPE_NAME.match(name) else None


UNLISTED = JobType()


def load_config(path: str, environment: Mapping[str, str] | None = None) -> JobConfig:
    """Raises InvalidJobs, saying where. Without a path there is only what the environment says.

    Example:
        load_config("jobs.toml")
    """
    tables = _read(path) if path else {}
    for names, value in _overrides(os.environ if environment is None else environment):
        _put(tables, names, value)
    whose = path or "JOBS__…"
    try:
        config = msgspec.convert(tables, JobConfig, strict=False)  # of a variable, numbers are text
    except msgspec.ValidationError as error:
        raise InvalidJobs(f"{whose}: {str(error).replace('`$.', '`')}") from error
    _check(config, whose)
    return config


def _read(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(Path(path).read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidJobs(f"{path} cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidJobs(f"{path} is no TOML: {error}") from error


def _overrides(environment: Mapping[str, str]) -> Iterator[tuple[list[str], Any]]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX) and text.strip():
            yield variable.removeprefix(PREFIX).split("__"), _value(text)


def _value(text: str) -> Any:
    """Lists, tables and quoted text as in the file; all else is text, which needs no quotes: 2024 may be a prefix."""
    if not text.strip().startswith(("[", "{", '"', "'")):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(tables: dict[str, Any], names: list[str], value: Any) -> None:
    *path, last = names
    for name in path:
        within = tables.setdefault(_same(tables, name), {})
        if not isinstance(within, dict):
            raise InvalidJobs(f"{PREFIX}{'__'.join(names)}: {name.lower()} is no table")
        tables = within
    tables[_same(tables, last)] = value


def _same(table: dict[str, Any], name: str) -> str:
    """How it is written there; in lower case where it is new."""
    written = {re.sub(r"[^A-Za-z0-9]", "_", key).upper(): key for key in table}
    return written.get(name.upper(), name.lower())


def _check(config: JobConfig, whose: str) -> None:
    for name, limit in config.hosts.items():
        for field in ("concurrency", "rate_per_s"):
            if not 0 <= (getattr(limit, field) or 0) <= LIMIT_MAX:
                raise InvalidJobs(f'{whose}: hosts."{name}".{field} must be 0, for no limit, or up to {LIMIT_MAX}')
    try:
        Pools({name: msgspec.structs.asdict(pool) for name, pool in config.proxies.items()})
    except InvalidJobs as error:
        raise InvalidJobs(f"{whose}: {error}") from error
    for name, kind in config.types.items():
        where = f"{whose}: types.{name}"
        if not TYPE_NAME.match(name):
            raise InvalidJobs(f"{where}: a type is called 1 to 64 of A-Z a-z 0-9 . _ -, the first a letter or digit")
        if kind.storage and kind.storage not in config.storages:
            raise InvalidJobs(f"{where}.storage: there is no [storages.{kind.storage}]")
        for pool in filter(None, (kind.proxies, *kind.proxy_fallbacks)):
            if pool != "direct" and pool not in config.proxies:
                raise InvalidJobs(f"{where}: there is no [proxies.{pool}]")
        if trouble := metadata_trouble(kind.metadata):
            raise InvalidJobs(f"{where}.metadata: {trouble}")
        if kind.key_prefix and (trouble := check_prefix(kind.key_prefix)):
            raise InvalidJobs(f"{where}.key_prefix: {trouble}")
