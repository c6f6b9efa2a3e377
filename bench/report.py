"""The report of a run: a table on the screen, files in bench/results/, and the table in the README."""

from __future__ import annotations

import os
import platform
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.table import Table

from bench.parts.run import Row, console

ROOT = Path(__file__).parent.parent
COLUMNS = ("", "p50", "p99", "rate", "load", "ratio", "target")


def report(rows: list[Row], sync_ms: float, *, update_readme: bool) -> None:
    now = datetime.now(UTC)
    machine = f"{os.cpu_count()} cores ({_cpu()}), {platform.system()}, Python {platform.python_version()}"
    connections = "64 connections, 200-byte values; batches on 16 connections, drained by 4."
    caption = f"{machine}; one fdatasync takes {sync_ms:.2f} ms (median). {connections}"
    table = Table(title="Slipstream bench", caption=caption)
    for name in COLUMNS:
        table.add_column(name, justify="left" if name in {"", "load"} else "right")
    for row in rows:
        style = {True: "green", False: "bold red", None: ""}[row.met]
        ratio = f"[{style}]{row.ratio}[/]" if style else row.ratio
        table.add_row(row.what, row.p50, row.p99, row.rate, row.load, ratio, row.target)
    console.print(table)
    markdown = _markdown(rows, caption, now)
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "latest.md").write_text(markdown)
    (results / "latest.json").write_bytes(
        msgspec.json.format(
            msgspec.json.encode({"time": now, "machine": machine, "fdatasync_ms": sync_ms, "rows": rows})
        )
    )
    if update_readme:
        readme = ROOT / "README.md"
        block = re.compile(r"<!-- bench:table -->.*?(?=\n## |\Z)", re.DOTALL)
        readme.write_text(block.sub(lambda _: f"<!-- bench:table -->\n\n{markdown}", readme.read_text()))


def _markdown(rows: list[Row], caption: str, now: datetime) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|---|--:|--:|--:|---|--:|--:|"]
    lines += [f"| {r.what} | {r.p50} | {r.p99} | {r.rate} | {r.load} | {r.ratio} | {r.target} |" for r in rows]
    return "\n".join([*lines, "", f"Measured on {now:%Y-%m-%d}: {caption}", ""])


def _cpu() -> str:
    found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    return found[1] if found else platform.machine()
