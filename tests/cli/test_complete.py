"""Completion in the shell: commands by themselves, names from the server or the store of slips."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slipstream.cli import main
from slipstream.slip import Control
from tests.cli.commands import Commands
from tests.cli.slips import kept, open_shop


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(cli: Commands, shell: str) -> None:
    assert "_SLIPSTREAM_COMPLETE" in cli.said("completion", shell)


def complete(url: str, line: str, **variables: str) -> list[str]:
    words = line.split(" ")
    environment = (
        os.environ
        | variables
        | {
            "SLIPSTREAM_URL": url,
            "_SLIPSTREAM_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(words) - 1),
        }
    )
    code = "from slipstream.cli import main; main(prog_name='slipstream')"
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


def offered(url: str, line: str) -> list[str]:
    """What the server knows; it is asked again where it has not answered within the second that a shell waits."""
    deadline = time.monotonic() + 60
    while not (found := complete(url, line)) and time.monotonic() < deadline:
        pass
    return found


def test_commands_topics_and_groups_are_completed(cli: Commands) -> None:
    cli.run("group", "seek", cli.topic, "enrichers", "--latest")
    assert "topic" in complete(cli.server.base, "slipstream to")
    assert cli.topic in offered(cli.server.base, f"slipstream topic show {cli.topic[:-1]}")
    assert offered(cli.server.base, f"slipstream group show {cli.topic} enr") == ["enrichers"]


def test_without_a_server_there_is_nothing_to_offer() -> None:
    assert complete("http://127.0.0.1:1", "slipstream topic show o") == []


def test_slips_and_their_steps_are_completed_from_the_store(tmp_path: Path) -> None:
    path = tmp_path / "slips.db"

    async def make() -> None:
        async with open_shop(path) as made:
            await made.submit("loan.v1", correlation_id="loan-1")
            await kept(made, "loan-1", "waiting")
            await Control(made.store).pause("charge")

    asyncio.run(make())

    def offered(line: str, store: Path = path) -> list[str]:
        return complete("", line, SLIP_STORE=str(store))

    assert offered("slipstream slip show lo") == ["loan-1"]
    assert offered("slipstream slip approve loan-1 ma") == ["manager"]
    assert offered("slipstream slip resume ") == ["charge"]
    assert offered("slipstream slip show lo", tmp_path / "gone.db") == []
    assert not (tmp_path / "gone.db").exists()


def test_every_command_has_words_of_help() -> None:
    for command in main.commands.values():
        assert command.help
