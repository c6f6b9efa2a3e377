"""`slipstream jobs submit`: a manifest, from a file or made from URLs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import rich_click as click

from slipstream.cli.jobs_service import on_a_service
from slipstream.cli.jobs_watch import follow
from slipstream.cli.output import EXIT_CODES, Output

if TYPE_CHECKING:
    from slipstream.jobs.client import JobsClient

ID_CHARS_MAX = 128


@click.command(epilog=EXIT_CODES)
@click.argument("sources", nargs=-1, required=True, metavar="MANIFEST | URL...")
@click.option("--type", "job_type", required=True, help="Of which type the job is.")
@click.option("--key", default="", help="Idempotency key: the same key and manifest are one job, however often sent.")
@click.option("--tenant", default="", help="For whom it is.")
@click.option(
    "--watch", is_flag=True, help="Show its progress until it has ended; exit code 1 if not all was completed."
)
@on_a_service
async def submit(
    jobs: JobsClient,
    output: Output,
    sources: tuple[str, ...],
    job_type: str,
    key: str,
    tenant: str,
    watch: bool,
) -> None:
    """Submit a job: a MANIFEST, which is a file of JSON, or - for stdin; or the URLs of its resources.

    \b
    [bold]Examples[/]
      slipstream jobs submit --type photos manifest.json --key crawl-17
      slipstream jobs submit --type photos http://cats/1.jpg http://cats/2.jpg --watch
    """
    are_urls = ["://" in source for source in sources]
    if not all(are_urls) and len(sources) > 1:
        raise click.UsageError("name one manifest (a file, or - for stdin), or the URLs of resources: one of both")
    content: Any = manifest_of(sources) if all(are_urls) else _read(sources[0])
    accepted = await jobs.submit(job_type, content, idempotency_key=key, tenant=tenant)
    if output.as_json:
        output.json(accepted)
    else:
        output.table(
            ["", ""],
            [
                ("job", accepted.job_id),
                ("manifest", accepted.manifest_key),
                ("resources", f"{accepted.resource_count:,}"),
            ],
        )
    if watch:
        sys.exit(await follow(jobs, output, [accepted.job_id]))


def manifest_of(urls: Sequence[str]) -> dict[str, Any]:
    """An id is the last part of the path, as that is how people know it; its position, where there is none."""
    seen: set[str] = set()
    resources = []
    for number, url in enumerate(urls, 1):
        name = _last_part(url) or str(number)
        found, again = name, 1
        while found in seen:
            again += 1
            found = f"{again}-{name}"
        seen.add(found)
        resources.append({"id": found, "url": url})
    return {"manifest_version": "v1", "resources": resources}


def _last_part(url: str) -> str:
    try:
        path = urlsplit(url).path
    except ValueError:
        return ""  # the service says what is wrong with it
    return unquote(path.rstrip("/").rpartition("/")[2])[: ID_CHARS_MAX - 10]


def _read(path: str) -> bytes:
    """As it is: the service checks it, and says what is wrong and where."""
    try:
        with click.open_file(path, "rb") as file:
            data: bytes = file.read()
    except OSError as error:
        raise click.UsageError(
            f"{path} cannot be read: {error.strerror or error}; name a file of JSON, or - for stdin"
        ) from error
    if not data.strip():
        raise click.UsageError(f"{path} is empty: a manifest is JSON, with manifest_version and resources")
    return data
