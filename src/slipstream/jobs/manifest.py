"""What a crawler sends: the resources that are wanted. Decoded once, at the edge, and refused with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from slipstream.jobs.download.checksum import parse_checksum
from slipstream.jobs.errors import JobsError

ID_CHARS_MAX = 128
HEADERS_MAX = 10
HEADER_BYTES_MAX = 1024
URL_CHARS_MAX = 8192
MIME_CHARS_MAX = 255
EXTRA_BYTES_MAX = 64 * 1024
"""Of the attributes, which go with every task, and of the tags of a resource, which go with its own: there may be a
thousand tasks, and not every bus takes messages of more than a megabyte."""
DEPTH_MAX = 64
"""Of what is nested in metadata and attributes: whoever encodes it again does so by recursion."""
VERSIONS = {"v1", "1", "1.0"}

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*\Z")
_MIME = re.compile(r"[\x20-\x7e]*\Z")
_PORT = r"(?:[1-9][0-9]{0,3}|[1-5][0-9]{4})"
_PLAIN_URL = re.compile(rf"https?://[A-Za-z0-9.-]*[A-Za-z0-9](?::{_PORT})?(?:[/?#][!-~]*)?\Z")
_CONTROLS = re.compile(r"[\x00-\x20\x7f]")


class InvalidManifest(JobsError):
    """A manifest that cannot be right. A handler raises it too, for what it does not take.

    Example:
        raise InvalidManifest("resources[3]: this type of job takes https only")
    """


class Resource(msgspec.Struct, forbid_unknown_fields=True):
    id: str
    url: str
    headers: dict[str, str] = {}
    tags: dict[str, str] = {}
    checksum: str = ""
    """Such as `sha256:…`; what is downloaded has to have it."""
    mime: str = ""
    """What it is, if the server does not say."""


class Manifest(msgspec.Struct, forbid_unknown_fields=True):
    """Version 1."""

    manifest_version: str | int | float
    resources: list[Resource]
    metadata: dict[str, Any] = {}
    """Whatever the crawler wants to be kept with the job."""
    attributes: dict[str, Any] = {}
    """Goes with every task, as JSON in `TaskAttributes.extra`."""


def decode_manifest(data: bytes, *, max_resources: int) -> Manifest:
    """Raises InvalidManifest, saying where."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except RecursionError as error:
        raise InvalidManifest(_TOO_DEEP) from error
    except UnicodeDecodeError as error:
        raise InvalidManifest(f"send it in UTF-8: {error}") from error
    except msgspec.DecodeError as error:
        raise InvalidManifest(_reason(error)) from error
    check_manifest(manifest, max_resources=max_resources)
    return manifest


def manifest_of(value: Mapping[str, Any], *, max_resources: int) -> Manifest:
    """Likewise, of what a program has at hand."""
    try:
        data = json.dumps(value).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidManifest(f"this cannot be sent as JSON: {error}") from error
    return decode_manifest(data, max_resources=max_resources)


def encode_manifest(manifest: Manifest) -> bytes:
    return msgspec.json.encode(manifest)


def check_manifest(manifest: Manifest, *, max_resources: int) -> None:
    """Raises InvalidManifest; also of what a handler has made of it."""
    if str(manifest.manifest_version) not in VERSIONS:
        raise InvalidManifest(f'manifest_version {manifest.manifest_version!r:.40} is not known: send "v1"')
    if not 1 <= len(manifest.resources) <= max_resources:
        raise InvalidManifest(
            f"there are {len(manifest.resources)} resources: send 1 to {max_resources}, and more in several jobs"
        )
    for name in ("metadata", "attributes"):
        if not _is_shallow(getattr(manifest, name)):
            raise InvalidManifest(f"{name}: {_TOO_DEEP}")
    if len(msgspec.json.encode(manifest.attributes)) > EXTRA_BYTES_MAX:
        raise InvalidManifest(
            f"attributes: at most {EXTRA_BYTES_MAX} bytes, as they go with every task: send the rest as metadata"
        )
    seen: dict[str, int] = {}
    for number, resource in enumerate(manifest.resources):
        before = seen.setdefault(resource.id, number)
        if before != number:
            raise InvalidManifest(f"resources[{number}].id: {resource.id!r:.140} is that of resources[{before}], too")
        for what, trouble in _troubles(resource):
            raise InvalidManifest(f"resources[{number}].{what}: {trouble}")


def resource_trouble(resource: Resource) -> str:
    """Why a manifest with it would be refused; "" if it is well."""
    return next((f"{what}: {trouble}" for what, trouble in _troubles(resource)), "")


def _troubles(resource: Resource) -> Iterator[tuple[str, str]]:
    if not 0 < len(resource.id) <= ID_CHARS_MAX:
        yield "id", f"1 to {ID_CHARS_MAX} characters are wanted"
    if trouble := url_trouble(resource.url):
        yield "url", trouble
    if len(resource.headers) > HEADERS_MAX:
        yield "headers", f"there are {len(resource.headers)}: at most {HEADERS_MAX} are taken"
    for name, value in resource.headers.items():
        if not _HEADER_NAME.match(name) or not _HEADER_VALUE.match(value):
            yield "headers", f"{name!r:.80} cannot be sent: it has characters that no header may have"
        elif len(name.encode()) + len(value.encode()) > HEADER_BYTES_MAX:
            yield "headers", f"{name!r:.80} is longer than {HEADER_BYTES_MAX} bytes"
    if sum(len(name.encode()) + len(value.encode()) for name, value in resource.tags.items()) > EXTRA_BYTES_MAX:
        yield "tags", f"they have more than {EXTRA_BYTES_MAX} bytes: send less, or several resources"
    if len(resource.mime) > MIME_CHARS_MAX or not _MIME.match(resource.mime):
        yield "mime", f"at most {MIME_CHARS_MAX} plain characters are wanted, such as image/png"
    if resource.checksum:
        try:
            parse_checksum(resource.checksum)
        except ValueError as error:
            yield "checksum", str(error)


def url_trouble(url: str) -> str:
    """Why it cannot be downloaded; "" if it may be."""
    if len(url) > URL_CHARS_MAX:
        return f"longer than {URL_CHARS_MAX} characters"
    if _PLAIN_URL.match(url):
        return ""  # nearly all are, and to take one apart costs more than all else that is checked
    if _CONTROLS.search(url):
        return "there are spaces or control characters in it: escape them"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return f"this is no URL: {error}"
    if parts.scheme.lower() not in {"http", "https"}:
        return f"{parts.scheme or 'no scheme'!r:.40}: only http and https are downloaded"
    if not parts.hostname or port == 0:
        return "it names no host"
    return ""


_TOO_DEEP = f"it is nested more than {DEPTH_MAX} deep: send it flatter"


def _is_shallow(value: Any) -> bool:
    layer = [value]
    for _ in range(DEPTH_MAX):
        layer = [each for outer in layer for each in _within(outer)]
        if not layer:
            return True
    return False


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def _reason(error: Exception) -> str:
    """In terms of the manifest: `$.resources[3].url` is msgspec's way to say where."""
    text, _, where = str(error).partition(" - at `$")
    if where.strip("`."):
        return f"{where.strip('`.')}: {text}"
    is_shape = isinstance(error, msgspec.ValidationError)
    return text if is_shape else f"the body is no JSON ({text}): send a manifest"
