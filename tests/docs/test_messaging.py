"""The page of the messages of jobs: what it shows runs, and its tables are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from slipstream.jobs.failure import Code
from slipstream.jobs.ledger import telling
from slipstream.jobs.settings import JobSettings, describe_settings
from slipstream.jobs.streams import DAY_MS, GB, streams
from tests.bus.sites.nats import NatsSite
from tests.client.loop import in_loop
from tests.docs.examples import BIN, examples, run_fragment, run_line
from tests.docs.pages import MESSAGING, ROOT, Command, blocks, commands, quoted, rows, section


@in_loop
async def test_the_fragments_run_and_print_what_stands_there() -> None:
    fragments = [example for example in examples(MESSAGING) if example.language == "python"]
    assert len(fragments) >= 4
    assert all(example.output for example in fragments)
    namespace: dict[str, object] = {}
    for example in fragments:
        await run_fragment(example, MESSAGING, None, namespace)


def provisioning() -> list[Command]:
    return [command for block in blocks(MESSAGING, "console") for command in commands(block)]


def test_provisioning_prints_what_stands_there(tmp_path: Path) -> None:
    first, second, _ = provisioning()
    for command in (first, second):
        assert run_line(command.line, directory=tmp_path) == command.output


def test_provisioning_on_nats_prints_what_stands_there(tmp_path: Path) -> None:
    *_, on_nats = provisioning()
    site = NatsSite()
    try:
        line = on_nats.line.replace("4222", str(site.port))
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=tmp_path,
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        site.close()
    assert without_sizes(done.stdout) == without_sizes(on_nats.output)


def without_sizes(output: str) -> str:
    """A server reserves them, and this machine may have less."""
    return re.sub(r"    size: .*\n|, size .*", "", output)


def test_the_streams_are_those_of_the_code() -> None:
    table = rows(section(MESSAGING, "Streams"))
    for row, stream in zip(table, streams(JobSettings().namespace).all(), strict=True):
        size = f"{stream.retention_bytes // GB} GB" if stream.retention_bytes else "no limit"
        group = f"`{stream.group}`" if stream.group else "none"
        kept = f"{stream.retention_ms // DAY_MS} d"
        assert (row[0].strip("`"), *row[4:]) == (stream.topic, group, str(stream.partitions), kept, size)


def test_the_schema_is_that_of_the_file() -> None:
    (shown,) = blocks(MESSAGING, "proto")
    _, schema = (ROOT / "proto" / "jobs.proto").read_text().split("\n", 1)
    assert shown == schema


def test_steps_codes_and_settings_are_there() -> None:
    said = quoted(MESSAGING.read_text())
    steps = {telling.STARTED, telling.DOWNLOADED, telling.STORED, telling.RETRY, telling.FAILED}
    assert steps <= said
    settings = {name for name in said if re.fullmatch(r"JOBS_[A-Z_]+", name)}
    assert settings <= {info.variable for info in describe_settings()}
    codes = {name for name in said if re.fullmatch(r"(?:SYSTEM|DOWNLOAD|UPLOAD|STORAGE|HANDLER)_[A-Z_]+", name)}
    assert codes <= set(Code)
    interval = re.search(r"at most every (\d+) ms", MESSAGING.read_text())
    assert interval is not None
    assert int(interval[1]) == JobSettings().status_interval_ms
