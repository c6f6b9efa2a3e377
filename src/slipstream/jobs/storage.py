"""Where objects are stored: a folder or a bucket, through obstore."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, NotFoundError, PermissionDeniedError, UnauthenticatedError
from obstore.store import LocalStore, ObjectStore, S3Store, from_url

from slipstream.jobs.config import JobConfig, StorageConfig
from slipstream.jobs.errors import InvalidJobs, JobsError
from slipstream.jobs.folder import Folder, sweep
from slipstream.jobs.uploads import UploadsUnavailable, abort_uploads, bucket_of

if TYPE_CHECKING:
    from obstore.store import RetryConfig

DEFAULT = ""
"""The name of the storage that is meant where none is named."""

Content: TypeAlias = bytes | IO[bytes]

PARTS_AT_A_TIME = 2
"""Of 5 MiB, which are in memory while they are sent: a worker has many uploads."""
RETRIES: RetryConfig = {
    "max_retries": 2,
    "retry_timeout": dt.timedelta(seconds=10),
    "backoff": {"init_backoff": dt.timedelta(milliseconds=100), "max_backoff": dt.timedelta(seconds=1), "base": 2},
}
"""Of single requests: whoever stores something tries it again by itself, and a crawler waits for the ingress."""
_XML = re.compile(r"<\?xml.*?<Code>([^<]*)</Code>.*?<Message>([^<]*)</Message>.*", re.DOTALL)


class StorageFailed(JobsError):
    """The store did not do it, as far as anybody here knows. It may be tried again, unless it is denied."""

    def __init__(self, message: str, *, is_denied: bool = False) -> None:
        super().__init__(message)
        self.is_denied = is_denied
        """The credentials do not suffice: trying again does not help."""


class ObjectMissing(JobsError):
    """There is no such object."""


class Storage:
    """One place. What `put` has returned from is stored as a whole; before, there is nothing, or what was there."""

    def __init__(self, name: str, config: StorageConfig, *, sync: bool = True) -> None:
        self.name = name
        self.shown = _shown(config.url)
        """Without names and passwords."""
        self._store, self._path = _open(config)
        self._is_synced = sync
        self._folder: Folder | None = None
        if isinstance(self._store, LocalStore) and self._path is not None:
            self._folder = Folder(self._path, self._store, sync=sync)

    async def put(
        self, key: str, content: Content, *, mime: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        """Raises StorageFailed. A file is read from its beginning, and never held in memory as a whole."""
        attributes = self._attributes(mime, metadata)
        try:
            if isinstance(content, bytes) and self._folder is not None:
                await self._folder.put(key, content)
            elif isinstance(content, bytes):
                await obstore.put_async(self._store, key, content, attributes=attributes, use_multipart=False)
            else:
                await asyncio.to_thread(content.seek, 0)
                await obstore.put_async(
                    self._store, key, content, attributes=attributes, max_concurrency=PARTS_AT_A_TIME
                )
                if self._folder is not None and self._is_synced:
                    await self._folder.sync(key)
        except Exception as error:  # a panic of the store's own is one, too
            raise self._failed(f"{key} cannot be stored", error) from error

    async def get(self, key: str) -> bytes:
        """Raises ObjectMissing, StorageFailed."""
        try:
            return bytes(await (await obstore.get_async(self._store, key)).bytes_async())
        except (NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise self._failed(f"{key} cannot be read", error) from error
            raise ObjectMissing(f"there is no {key} in {self.shown}") from error
        except (BaseError, OSError, ValueError) as error:
            raise self._failed(f"{key} cannot be read", error) from error

    async def delete(self, *keys: str) -> None:
        """Those that are there. Raises StorageFailed."""
        for key in keys:
            try:
                await obstore.delete_async(self._store, key)
            except (NotFoundError, FileNotFoundError):
                continue
            except (BaseError, OSError, ValueError) as error:
                raise self._failed(f"{key} cannot be deleted", error) from error

    async def sweep(self, key: str) -> None:
        """Removes what whoever was killed while storing it has left beside it: a store writes a file to its end before
        it has its name. Should somebody be alive after all, who writes it now, that attempt fails and is made again."""
        if self._path is not None:
            await asyncio.to_thread(sweep, self._path / key)

    async def abort_uploads(self, prefix: str, before: dt.datetime, is_ours: Callable[[str], bool]) -> int | None:
        """Abort the multipart uploads below the prefix that were begun before and never completed; return how many.

        None where that cannot be done: in stores other than S3, and without static credentials. Raises StorageFailed.
        """
        if not isinstance(self._store, S3Store):
            return None
        bucket = bucket_of(dict(self._store.config))
        if bucket is None:
            return None
        root = f"{str(self._store.prefix).strip('/')}/" if self._store.prefix else ""
        try:
            return await abort_uploads(bucket, root + prefix, before, lambda key: is_ours(key.removeprefix(root)))
        except UploadsUnavailable as error:
            raise StorageFailed(str(error)) from error

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """Of everything below the prefix. Raises StorageFailed."""
        try:
            async for page in obstore.list(self._store, prefix):
                for meta in page:
                    yield meta["path"]
        except (BaseError, OSError) as error:
            raise self._failed(f"{prefix} cannot be listed", error) from error

    async def check(self) -> None:
        """Raises StorageFailed if it does not answer, or a folder cannot be written to."""
        if self._path is not None:
            try:
                await asyncio.to_thread(_try_out, self._path)
            except OSError as error:
                raise self._failed("nothing can be stored", error) from error
            return
        try:
            await self.get("manifests/.none")
        except ObjectMissing:
            return

    def close(self) -> None:
        if self._folder is not None:
            self._folder.close()

    def _attributes(self, mime: str, metadata: Mapping[str, str] | None) -> Any:
        """A folder has no place for them."""
        if self._folder is not None:
            return None
        is_mime = bool(mime) and mime.isascii() and mime.isprintable()  # a hint that cannot be one is none
        return {**({"Content-Type": mime} if is_mime else {}), **(metadata or {})} or None

    def _failed(self, what: str, error: Exception) -> StorageFailed:
        denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | PermissionError)
        return StorageFailed(f"{what} in {self.shown}: {_reason(error)}", is_denied=denied)


class Storages:
    """Those of a configuration, by name; the one of JOBS_STORAGE has none."""

    def __init__(self, url: str, config: JobConfig, *, sync: bool = True) -> None:
        configs = {DEFAULT: StorageConfig(url=url), **config.storages}
        self._by_name = {name: Storage(name, each, sync=sync) for name, each in configs.items()}

    @property
    def default(self) -> Storage:
        return self._by_name[DEFAULT]

    def __iter__(self) -> Iterator[Storage]:
        return iter(self._by_name.values())

    def find(self, name: str) -> Storage | None:
        return self._by_name.get(name)

    def close(self) -> None:
        for storage in self._by_name.values():
            storage.close()


def _open(config: StorageConfig) -> tuple[ObjectStore, Path | None]:
    """The store, and its folder if it is one. Raises InvalidJobs."""
    url = config.url
    scheme = urlsplit(url).scheme
    try:
        if scheme in {"", "file"}:
            folder = Path(urlsplit(url).path if scheme else url).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            return LocalStore(folder, mkdir=True), folder
        options: dict[str, Any] = dict(config.options)
        endpoint = str(
            options.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
        )
        client: dict[str, Any] = {"timeout": "600s", "connect_timeout": "5s"}
        if endpoint:
            options.setdefault("endpoint", endpoint)
            client["allow_http"] = endpoint.startswith("http:")
        return from_url(url, config=options, client_options=client, retry_config=RETRIES), None  # type: ignore[call-overload]
    except (BaseError, OSError, ValueError, TypeError) as error:
        raise InvalidJobs(f"the storage {_shown(url)} cannot be used: {_reason(error)}") from error


def _try_out(folder: Path) -> None:
    """Raises OSError. It is not made anew where it is gone: a disk that is not mounted has an empty place, too."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"all is well")


def _reason(error: Exception) -> str:
    """Without what obstore appends in Rust's own notation, and of an answer in XML only the words."""
    text = str(error).partition("\n\nDebug source:")[0]
    return " ".join(_XML.sub(r"\1: \2", text).split()) or type(error).__name__


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return url if "@" not in parts.netloc else url.replace(parts.netloc, parts.netloc.rpartition("@")[2])
