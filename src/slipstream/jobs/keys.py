"""Keys of objects: where what is stored, in a way that no id and no hint can leave its place."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from urllib.parse import quote

RESOURCES = "resources"
MANIFESTS = "manifests"

PART_BYTES_MAX = 200
"""A file's name has 255 bytes, and stores add to it while they write."""
PREFIX_BYTES_MAX = 512
METADATA_BYTES_MAX = 2048
"""S3 keeps 2 KB."""

_SAFE = "!'()@,=+ "
"""Kept as they are, besides letters, digits and `_.-~`: harmless in files, URLs and stores alike."""
_METADATA_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*\Z")
_METADATA_VALUE = re.compile(r"[\x20-\x7e]*\Z")
_PREFIX_PART = re.compile(r"[A-Za-z0-9_!'()@,=+ -][A-Za-z0-9_.!'()@,=+ ~-]*\Z")


def manifest_key(job_type: str, job_id: str) -> str:
    return f"{MANIFESTS}/{part(job_type)}/{part(job_id)}/metadata.json"


def resource_key(prefix: str, job_type: str, job_id: str, resource_id: str) -> str:
    """Below `resources/`, always; `prefix` has been checked."""
    place = prefix.strip("/") or f"{part(job_type)}/{part(job_id)}"
    return f"{RESOURCES}/{place}/{part(resource_id)}"


def is_resource_key(key: str) -> bool:
    """Whether `resource_key` could have made it: what others say of where something is may be anything."""
    place, *parts = key.split("/")
    return place == RESOURCES and bool(parts) and not {"", ".", ".."} & set(parts)


def check_prefix(prefix: str) -> str:
    """Why it cannot be used; "" if it can."""
    if len(prefix.encode()) > PREFIX_BYTES_MAX:
        return f"longer than {PREFIX_BYTES_MAX} bytes"
    for each in prefix.strip("/").split("/"):
        if not _PREFIX_PART.match(each) or len(each) > PART_BYTES_MAX:
            return (
                f"{each!r:.60} cannot be a part of a key: 1 to {PART_BYTES_MAX} characters of A-Z a-z 0-9 _ . - and "
                "some more, the first no dot"
            )
    return ""


def metadata_trouble(metadata: Mapping[str, str]) -> str:
    """Why a store could not keep it with an object; "" if it could."""
    for name, value in metadata.items():
        if not _METADATA_NAME.match(name) or not _METADATA_VALUE.match(value):
            return f"{name!r:.60}: stores keep names of A-Z a-z 0-9 _ . -, with plain text of one line"
    if sum(len(name) + len(value) for name, value in metadata.items()) > METADATA_BYTES_MAX:
        return f"there is more than {METADATA_BYTES_MAX} bytes of it, which is what stores keep"
    return ""


def part(name: str) -> str:
    """The name as one part of a key: different for different names, and never `.`, `..`, empty or too long."""
    quoted = quote(name, safe=_SAFE)
    if quoted.startswith((".", " ")) or quoted.endswith(" "):
        quoted = "".join(f"%{ord(each):02X}" if each in ". " else each for each in quoted)
    if len(quoted) <= PART_BYTES_MAX and quoted:
        return quoted
    # Two long ones may begin alike; one that was cut has a mark that no other can have, as % is always escaped.
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{quoted[: PART_BYTES_MAX - 70].rstrip('%')}%~{digest}"
