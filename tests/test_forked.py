"""Programs that are forked for tests end, write and are killed as programs that are started."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forked import PRELOADED, Forked, run


@pytest.mark.parametrize("name", PRELOADED)
def test_what_is_imported_before_the_fork_is_there(name: str) -> None:
    importlib.import_module(name)


@pytest.mark.parametrize(
    "program",
    [
        "print('out'); import sys; sys.exit('why not')",
        "import os, sys; sys.exit(len(os.listdir()) + len(os.environ['WORD']))",
        "import sys; print(sys.stdin.read() + sys.argv[1])",
        "import atexit; atexit.register(print, 'at the end'); 1 / 0",
        "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
        "import os, signal; print('said before'); os.kill(os.getpid(), signal.SIGINT)",
    ],
)
def test_it_ends_as_a_program_that_was_started(program: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", program, "argument"]
    environment = os.environ | {"WORD": "four"}
    forked = run(command, env=environment, cwd=tmp_path, typed="typed")
    started = subprocess.run(
        command, env=environment, cwd=tmp_path, input="typed", capture_output=True, text=True, timeout=60, check=False
    )
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stderr.splitlines()[-1:] == started.stderr.splitlines()[-1:]


def test_it_is_killed() -> None:
    with Forked([sys.executable, "-c", "print('here', flush=True); input()"], stdin=subprocess.PIPE, stdout=-1) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == "here\n"
        assert it.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            it.wait(0.01)
        it.kill()
        assert it.wait(30) == -signal.SIGKILL
        it.kill()  # again, which does nothing
