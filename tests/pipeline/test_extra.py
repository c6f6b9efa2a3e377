"""What `slipstream[pipeline]` installs is all that the pipeline needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.pipeline.sample_tables import END, make_table, place

OF_OTHER_EXTRAS = {
    "nats": ("nats", "nkeys"),
    "pubsub": ("google.cloud", "google.api_core", "grpc"),
    "opentelemetry": ("opentelemetry",),
    "slip": ("datalogic_py", "yaml"),
    "redis": ("redis",),
    "jobs": ("obstore",),
    "connect": ("grpc", "grpc_status", "google.rpc", "zstandard"),
}
"""Extra → what only it installs."""

HIDDEN = [name for names in OF_OTHER_EXTRAS.values() for name in names]

HIDE = f"import sys; sys.modules.update(dict.fromkeys({HIDDEN!r})); "


def without_other_extras(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", HIDE + program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_other_extra_is_hidden_here() -> None:
    project = tomllib.loads(Path(__file__, "../../../pyproject.toml").resolve().read_text())["project"]
    assert set(OF_OTHER_EXTRAS) == set(project["optional-dependencies"]) - {"pipeline", "all"}


def test_every_module_can_be_imported() -> None:
    program = """
import importlib, json, pkgutil
import pyspark_slipstream, slipstream.cli, slipstream.pipeline

names = [each.name for each in pkgutil.walk_packages(slipstream.pipeline.__path__, "slipstream.pipeline.")]
names += [
    each.name
    for each in pkgutil.iter_modules(slipstream.cli.__path__, "slipstream.cli.")
    if each.name.startswith(("slipstream.cli.pipeline", "slipstream.cli.table"))
]
failed = []
for name in names:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed.append(f"{name}: {error}")
print(json.dumps([names, failed]))
"""
    names, failed = json.loads(without_other_extras(program))
    # Which is opened where the bus is NATS, and nowhere else; and downloads are for who has jobs installed, too.
    elsewhere = ("slipstream.pipeline.source.nats_log: ", "slipstream.pipeline.downloads.")
    assert [line for line in failed if not line.startswith(elsewhere)] == []
    assert {"slipstream.pipeline.source.opening", "slipstream.pipeline.queries.task"} < set(names)
    assert {"slipstream.cli.pipeline_run", "slipstream.cli.table_folder"} < set(names)


def test_messages_of_jobs_are_decoded() -> None:
    program = """
import pyarrow as pa
from slipstream.jobs import messages, streams
from slipstream.pipeline.decode import decode_protobuf

assert streams.streams("x")
job = messages.JobStatus(job_id="a").SerializeToString()
print(decode_protobuf("JobStatus", pa.array([job], pa.binary())).columns.num_rows)
"""
    assert without_other_extras(program) == "1\n"


def test_commands_run(tmp_path: Path) -> None:
    make_table(tmp_path, "messages", [place("orders", 1, END)])
    commands = [
        ["table", "list"],
        ["table", "sql", "select count(*) from messages"],
        ["pipeline", "maintain"],
        ["pipeline", "report", "--out", "-"],
        ["pipeline", "run", "--help"],
        ["pipeline", "backfill", "--help"],
    ]
    program = f"""
from click.testing import CliRunner
from slipstream.cli import main

for command in {commands!r}:
    ended = CliRunner().invoke(main, command, env={{"PIPELINE_TABLES": {str(tmp_path)!r}}})
    if ended.exit_code or not ended.stdout:
        print(command, ended.output, repr(ended.exception))
"""
    assert without_other_extras(program) == ""
