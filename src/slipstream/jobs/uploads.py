"""The multipart uploads of an S3 bucket that were never completed: a worker that dies while it stores leaves one.

Their parts cost money and no listing of objects shows them. The object-store library cannot list them, and its signed
URLs cover no query parameters, so the requests are signed here (AWS Signature Version 4).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import os
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import aiohttp
import msgspec
from yarl import URL

from slipstream.jobs.errors import JobsError

TIMEOUT_S = 30.0
PAGES_MAX = 100
"""Pages of 1,000 uploads that one look reads."""
_EMPTY = hashlib.sha256(b"").hexdigest()


class UploadsUnavailable(JobsError):
    """The unfinished uploads of a bucket cannot be listed or aborted now."""


class Upload(msgspec.Struct, frozen=True):
    """A multipart upload that was not completed."""

    key: str
    id: str
    begun_at: dt.datetime


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """An S3 bucket and the static credentials for it."""

    url: str
    """Address of the bucket, without a slash at its end."""
    region: str
    access_key_id: str
    secret_access_key: str
    token: str = ""


def bucket_of(config: Mapping[str, object], environment: Mapping[str, str] | None = None) -> Bucket | None:
    """Return the bucket of a store's configuration; None without static credentials, which cannot be signed with.

    Example:
        bucket_of(store.config)
    """
    known = os.environ if environment is None else environment
    access_key_id, secret = _pair(config, known)
    name = str(config.get("bucket") or "")
    if not (name and access_key_id and secret) or str(config.get("skip_signature", "false")).lower() == "true":
        return None
    region = str(
        config.get("region")
        or config.get("default_region")
        or known.get("AWS_REGION")
        or known.get("AWS_DEFAULT_REGION")
        or "us-east-1"
    )
    endpoint = str(
        config.get("endpoint") or known.get("AWS_ENDPOINT_URL_S3") or known.get("AWS_ENDPOINT_URL") or ""
    ).rstrip("/")
    is_virtual = str(config.get("virtual_hosted_style_request", "false")).lower() == "true"
    if not endpoint:
        url = f"https://s3.{region}.amazonaws.com/{name}"
    else:
        url = endpoint if is_virtual else f"{endpoint}/{name}"  # a virtual-hosted endpoint names the bucket itself
    token = str(config.get("token") or ("" if config.get("access_key_id") else known.get("AWS_SESSION_TOKEN", "")))
    return Bucket(url=url, region=region, access_key_id=access_key_id, secret_access_key=secret, token=token)


def _pair(config: Mapping[str, object], known: Mapping[str, str]) -> tuple[str, str]:
    """Return key id and secret of one source: a pair of two sources opens nothing."""
    if config.get("access_key_id"):
        return str(config["access_key_id"]), str(config.get("secret_access_key") or "")
    return known.get("AWS_ACCESS_KEY_ID", ""), known.get("AWS_SECRET_ACCESS_KEY", "")


async def abort_uploads(
    bucket: Bucket, prefix: str, before: dt.datetime, is_ours: Callable[[str], bool] = lambda key: True
) -> int:
    """Abort the uploads below the prefix that were begun before and whose key is ours; return how many.

    Raises UploadsUnavailable.
    """
    aborted = 0
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
            async for upload in _uploads(session, bucket, prefix):
                if upload.begun_at >= before or not is_ours(upload.key):
                    continue
                await _request(session, bucket, "DELETE", upload.key, {"uploadId": upload.id})
                aborted += 1
    except (aiohttp.ClientError, TimeoutError, ValueError, ElementTree.ParseError) as error:
        raise UploadsUnavailable(f"unfinished uploads of {bucket.url} cannot be aborted: {error!r:.300}") from error
    return aborted


async def _uploads(session: aiohttp.ClientSession, bucket: Bucket, prefix: str) -> AsyncIterator[Upload]:
    marks: dict[str, str] = {}
    for _ in range(PAGES_MAX):
        asked = {"uploads": "", "prefix": prefix, **marks}
        page = ElementTree.fromstring(await _request(session, bucket, "GET", "", asked))
        for each in page.iterfind("{*}Upload"):
            key, upload_id = each.findtext("{*}Key", ""), each.findtext("{*}UploadId", "")
            if key.startswith(prefix) and upload_id:
                yield Upload(key, upload_id, _time(each.findtext("{*}Initiated", "")))
        if page.findtext("{*}IsTruncated", "false") != "true":
            return
        marks = {
            "key-marker": page.findtext("{*}NextKeyMarker", ""),
            "upload-id-marker": page.findtext("{*}NextUploadIdMarker", ""),
        }


def _time(text: str) -> dt.datetime:
    found = dt.datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


async def _request(
    session: aiohttp.ClientSession, bucket: Bucket, method: str, key: str, query: Mapping[str, str]
) -> bytes:
    """Return the body of the answer. Raises UploadsUnavailable where the bucket refuses."""
    url, headers = signed(bucket, method, key, query, dt.datetime.now(dt.UTC))
    async with session.request(method, _verbatim(url), headers=headers, allow_redirects=False) as response:
        body = await response.read()
        is_gone = method == "DELETE" and response.status == 404  # it was completed or aborted meanwhile
        if response.status >= 300 and not is_gone:
            raise UploadsUnavailable(
                f"unfinished uploads of {bucket.url} cannot be aborted: {method} answered {response.status} "
                f"{body[:200].decode(errors='replace')}"
            )
        return body


def _verbatim(url: str) -> URL:
    """Return an address that is sent as it was signed."""
    return URL(url, encoded=True)


def signed(
    bucket: Bucket, method: str, key: str, query: Mapping[str, str], at: dt.datetime
) -> tuple[str, dict[str, str]]:
    """Return the address of a request without a body and the headers that sign it."""
    parts = urlsplit(bucket.url)
    path = quote(f"{parts.path}/{key}" if key else parts.path or "/", safe="/-_.~")
    asked = "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(query.items()))
    time, day = at.strftime("%Y%m%dT%H%M%SZ"), at.strftime("%Y%m%d")
    headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": time}
    if bucket.token:
        headers["x-amz-security-token"] = bucket.token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = "\n".join((method, path, asked, lines, names, _EMPTY))
    scope = f"{day}/{bucket.region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", time, scope, hashlib.sha256(request.encode()).hexdigest()))
    secret = f"AWS4{bucket.secret_access_key}".encode()
    for part in (day, bucket.region, "s3", "aws4_request"):
        secret = hmac.digest(secret, part.encode(), "sha256")
    signature = hmac.digest(secret, text.encode(), "sha256").hex()
    headers["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={bucket.access_key_id}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return f"{parts.scheme}://{parts.netloc}{path}?{asked}", headers
