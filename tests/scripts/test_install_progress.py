"""What the first `make run` shows while it installs."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "install_progress.py"
LOCK = "aiohttp==3.13.0 \\\n    --hash=sha256:00\nduckdb==1.4.0\n"
WELL = """\
Looking in links: wheels
Collecting aiohttp==3.13.0
  Using cached aiohttp-3.13.0.whl (1.7 MB)
Requirement already satisfied: duckdb==1.4.0 in .venv
Installing collected packages: aiohttp
Successfully installed aiohttp-3.13.0
"""


def show(tmp_path: Path, said: str) -> list[str]:
    (tmp_path / "lock").write_text(LOCK)
    shown = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "lock"], input=said, capture_output=True, text=True, check=True
    )
    assert shown.stderr == ""
    return shown.stdout.splitlines()


def test_a_file_gets_a_few_lines(tmp_path: Path) -> None:
    assert show(tmp_path, WELL) == [
        "  collecting about 2 libraries",
        "  installing 1 libraries",
        "  1 libraries installed, in 0 s",
    ]


def test_from_the_first_error_on_everything_is_said(tmp_path: Path) -> None:
    said = "Collecting aiohttp==3.13.0\nERROR: No matching distribution\n  because of this\n"
    assert show(tmp_path, said)[1:] == ["ERROR: No matching distribution", "  because of this"]


def test_a_terminal_gets_one_line_that_is_gone_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, SCRIPT, tmp_path / "lock"], stdin=subprocess.PIPE, stdout=theirs, text=True
    )
    os.close(theirs)
    process.communicate(WELL)
    drawn = b""
    try:
        while chunk := os.read(ours, 4096):
            drawn += chunk
    except OSError:  # what Linux says at the end of a terminal
        pass
    os.close(ours)
    lines = drawn.decode().replace("\r\n", "\n").split("\r")
    assert any(line.startswith("  collecting 1 of about 2: aiohttp") for line in lines)
    assert lines[-1] == "  1 libraries installed, in 0 s\n"


def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text(LOCK)
    process = subprocess.Popen(
        [sys.executable, SCRIPT, tmp_path / "lock"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin
    assert process.stdout
    process.stdin.write("Collecting aiohttp==3.13.0\n")
    process.stdin.flush()
    assert process.stdout.readline() == "  collecting about 2 libraries\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate() == ("", "")
    assert process.returncode == 130
