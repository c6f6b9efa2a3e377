"""All parts together, as real processes: who starts first, who comes back, who ends last, and that nobody is left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from slipstream.up import Part
from slipstream.up.lock import is_alive
from slipstream.up.said import Said
from tests.client.loop import in_loop
from tests.up.small_part import small_part
from tests.up.supervised import supervised, until_gone


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    path = tmp_path / "diary"
    path.touch()
    return path


def entries(diary: Path) -> list[str]:
    return [line.rpartition(" ")[0] for line in diary.read_text().splitlines()]


def pids(diary: Path) -> list[int]:
    return [int(line.rpartition(" ")[2]) for line in diary.read_text().splitlines()]


@in_loop
async def test_a_part_is_started_when_what_it_needs_is_ready_and_not_before(tmp_path: Path, diary: Path) -> None:
    broker, worker = small_part("broker", diary, "slow"), small_part("worker", diary, needs=("broker",))
    async with supervised(tmp_path / "up", broker, worker) as up:
        assert await up.told.until("worker", "waiting") == "needs broker"
        assert await up.told.until("broker", "starting", times=2) == "no go yet"
        assert entries(diary) == ["broker started"]
        (tmp_path / "broker.go").touch()
        await asyncio.wait_for(up.told.has_started.wait(), 60)
        assert entries(diary) == ["broker started", "worker started"]
        assert [part.state for part in up.file().parts] == ["running", "running"]
        assert await up.stop() == 0


@in_loop
async def test_those_who_need_a_part_end_before_it(tmp_path: Path, diary: Path) -> None:
    parts = [
        small_part("broker", diary),
        small_part("jobs", diary, needs=("broker",)),
        small_part("slips", diary, needs=("broker",)),
    ]
    async with supervised(tmp_path / "up", *parts) as up:
        await asyncio.wait_for(up.told.has_started.wait(), 60)
        assert await up.stop() == 0
        ends = [entry for entry in entries(diary) if entry.endswith("stopped")]
        assert set(ends[:2]) == {"jobs stopped", "slips stopped"}
        assert ends[2:] == ["broker stopped"]
        assert not [pid for pid in pids(diary) if is_alive(pid)]
        assert [part.state for part in up.file().parts] == ["stopped"] * 3
        assert up.told.killed_parts == []


@in_loop
async def test_a_part_that_crashed_comes_back_and_the_file_says_so(tmp_path: Path, diary: Path) -> None:
    async with supervised(tmp_path / "up", small_part("jobs", diary), restart_base_ms=10) as up:
        await up.told.until("jobs", "running")
        before = up.part("jobs")
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        reason = await up.told.until("jobs", "crashed")
        assert reason == "killed by SIGKILL; started again in 0.01 s"
        await up.told.until("jobs", "running", times=2)
        after = up.part("jobs")
        assert (after.state, after.restarts, after.reason) == ("running", 1, "ended before: killed by SIGKILL")
        assert after.pid not in {None, before.pid}
        assert after.log[-1:] == ["jobs says hello"]
        assert await up.stop() == 0


@in_loop
async def test_a_part_that_only_crashes_does_not_keep_the_others_from_being_shown(tmp_path: Path, diary: Path) -> None:
    parts = [small_part("broker", diary), small_part("pipeline", diary, "exit=1", needs=("broker",))]
    async with supervised(tmp_path / "up", *parts, restart_base_ms=10) as up:
        await asyncio.wait_for(up.told.has_started.wait(), 60)
        assert ("broker", "running", "") in up.told.states
        await up.told.until("pipeline", "crashed")
        assert await up.stop() == 0


@in_loop
async def test_the_pauses_double_up_to_the_longest(tmp_path: Path, diary: Path) -> None:
    part = small_part("jobs", diary, "exit=1")
    async with supervised(tmp_path / "up", part, restart_base_ms=10, restart_longest_ms=40) as up:
        await up.told.until("jobs", "crashed", times=4)
        pauses = [reason.rpartition("in ")[2] for _, state, reason in up.told.states if state == "crashed"]
        assert pauses[:4] == ["0.01 s", "0.02 s", "0.04 s", "0.04 s"]
        assert await up.stop() == 0


@in_loop
async def test_after_it_ran_well_the_pauses_begin_anew(tmp_path: Path, diary: Path) -> None:
    settings = {"restart_base_ms": 10, "well_after_ms": 1}
    async with supervised(tmp_path / "up", small_part("jobs", diary), **settings) as up:
        for times in (1, 2, 3):
            await up.told.until("jobs", "running", times=times)
            pid = up.part("jobs").pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            assert (await up.told.until("jobs", "crashed", times=times)).endswith("in 0.01 s")
        assert await up.stop() == 0


@pytest.mark.parametrize(
    ("how", "reason"), [("trouble", "the bus is away"), ("mute", "it does not answer")], ids=["trouble", "mute"]
)
@in_loop
async def test_a_part_that_takes_no_work_any_more_waits_and_is_left_alone_as_long_as_it_is_alive(
    tmp_path: Path, diary: Path, how: str, reason: str
) -> None:
    trouble = tmp_path / f"jobs.{how}"
    async with supervised(tmp_path / "up", small_part("jobs", diary), health_every_ms=10, dead_after=2) as up:
        await up.told.until("jobs", "running")
        before = up.part("jobs")
        trouble.touch()
        assert await up.told.until("jobs", "waiting") == reason
        assert up.part("jobs").pid == before.pid
        trouble.unlink()
        await up.told.until("jobs", "running", times=2)
        assert up.part("jobs").pid == before.pid
        assert await up.stop() == 0


@pytest.mark.parametrize(
    ("how", "reason"), [("dead", "its loop stands still"), ("silent", "it does not answer")], ids=["dead", "silent"]
)
@in_loop
async def test_a_part_that_is_not_alive_for_long_is_killed_and_comes_back(
    tmp_path: Path, diary: Path, how: str, reason: str
) -> None:
    told = tmp_path / f"jobs.{how}"
    settings = {"health_every_ms": 10, "dead_after": 3, "restart_base_ms": 10}
    async with supervised(tmp_path / "up", small_part("jobs", diary, "stubborn"), **settings) as up:
        await up.told.until("jobs", "running")
        told.touch()
        assert await up.told.until("jobs", "waiting") == reason
        crashed = await up.told.until("jobs", "crashed")
        assert crashed == f"killed, as it was not alive 3 times in a row: {reason}; started again in 0.01 s"
        told.unlink()
        await up.told.until("jobs", "running", times=2)
        assert up.part("jobs").restarts == 1
        await up.kill()


@in_loop
async def test_who_is_to_be_left_alone_is_never_killed(tmp_path: Path, diary: Path) -> None:
    """As where somebody looks at it with a debugger."""
    told = tmp_path / "jobs.silent"
    async with supervised(tmp_path / "up", small_part("jobs", diary), health_every_ms=1, dead_after=0) as up:
        await up.told.until("jobs", "running")
        told.touch()
        await up.told.until("jobs", "waiting")
        told.unlink()
        await up.told.until("jobs", "running", times=2)
        assert entries(diary) == ["jobs started"]
        assert await up.stop() == 0


@in_loop
async def test_what_a_start_would_not_mend_is_not_started_again(tmp_path: Path, diary: Path) -> None:
    broken = small_part("jobs", diary, "exit=2", hopeless={2: "a setting makes no sense"})
    async with supervised(tmp_path / "up", broken, small_part("slips", diary)) as up:
        await asyncio.wait_for(up.told.has_started.wait(), 60)
        part = up.part("jobs")
        assert (part.state, part.restarts) == ("stopped", 0)
        assert part.reason == "exit code 2: jobs gives up; a setting makes no sense"
        assert up.part("slips").state == "running"
        assert await up.stop() == 0


@in_loop
async def test_what_was_ready_once_comes_back_however_its_next_start_ends(tmp_path: Path, diary: Path) -> None:
    """Somebody has its port for a moment, say."""
    part = small_part("broker", diary, "refuse-if-told", hopeless={2: "a setting makes no sense"}, is_vital=True)
    async with supervised(tmp_path / "up", part, restart_base_ms=10) as up:
        await up.told.until("broker", "running")
        refusal = tmp_path / "broker.refuse"
        refusal.touch()
        pid = up.part("broker").pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        reason = await up.told.until("broker", "crashed", times=2)
        assert reason.startswith("exit code 2: broker gives up; started again in")
        refusal.unlink()
        await up.told.until("broker", "running", times=2)
        assert await up.stop() == 0


@in_loop
async def test_without_what_is_vital_everything_ends_with_its_code(tmp_path: Path, diary: Path) -> None:
    broker = small_part("broker", diary, "exit=5", hopeless={5: "choose another port"}, is_vital=True)
    async with supervised(tmp_path / "up", broker, small_part("slips", diary, needs=("broker",))) as up:
        assert await up.ended() == 5
        assert entries(diary) == []
        assert up.part("slips").state == "stopped"


@in_loop
async def test_a_command_that_is_not_there_is_a_crash_with_words(tmp_path: Path, diary: Path) -> None:
    part = small_part("jobs", diary)
    async with supervised(tmp_path / "up", type(part)(name="jobs", command=("/no/such/program",))) as up:
        reason = await up.told.until("jobs", "crashed")
        assert "exit code 127: /no/such/program cannot be started: No such file or directory" in reason
        assert await up.stop() == 0


@in_loop
async def test_who_does_not_end_in_time_is_killed_with_all_that_it_started(tmp_path: Path, diary: Path) -> None:
    part = small_part("jobs", diary, "stubborn", "parent")
    async with supervised(tmp_path / "up", part, stop_timeout_ms=100) as up:
        await up.told.until("jobs", "running")
        assert await up.stop() == 1
        assert up.told.killed_parts == ["jobs"]
        assert entries(diary) == ["jobs child", "jobs started"]
        until_gone(pids(diary))


@in_loop
async def test_what_a_part_leaves_behind_ends_with_it(tmp_path: Path, diary: Path) -> None:
    async with supervised(tmp_path / "up", small_part("jobs", diary, "parent")) as up:
        await up.told.until("jobs", "running")
        assert await up.stop() == 0
        until_gone(pids(diary))


@in_loop
async def test_a_second_signal_kills_but_not_one_that_comes_with_the_first(tmp_path: Path, diary: Path) -> None:
    parts = [small_part("broker", diary), small_part("jobs", diary, "stubborn", needs=("broker",))]
    async with supervised(tmp_path / "up", *parts) as up:
        await asyncio.wait_for(up.told.has_started.wait(), 60)
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(up.told.is_stopping.wait(), 60)
        assert up.told.killed_parts == []
        up.now_s += 1
        os.kill(os.getpid(), signal.SIGTERM)
        assert await up.ended() == 130
        assert up.told.killed_parts == ["all"]
        assert not [pid for pid in pids(diary) if is_alive(pid)]


@in_loop
async def test_a_terminal_that_is_closed_lets_everything_finish(tmp_path: Path, diary: Path) -> None:
    async with supervised(tmp_path / "up", small_part("jobs", diary)) as up:
        await up.told.until("jobs", "running")
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.wait_for(up.told.is_stopping.wait(), 60)
        up.now_s += 1
        os.kill(os.getpid(), signal.SIGHUP)
        assert await up.ended() == 0
        assert entries(diary) == ["jobs started", "jobs stopped"]
        assert up.told.killed_parts == []


@in_loop
async def test_what_parts_say_is_told_and_kept(tmp_path: Path, diary: Path) -> None:
    async with supervised(tmp_path / "up", small_part("jobs", diary)) as up:
        await up.told.until("jobs", "running")
        assert await up.stop() == 0
        assert up.told.lines == [("jobs", "jobs says hello")]
        assert (tmp_path / "up" / "jobs.log").read_text() == "jobs says hello\n"


@in_loop
async def test_what_cannot_be_shown_ends_no_part_and_is_said_once(
    tmp_path: Path, diary: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*what: object) -> None:
        raise ValueError("no such character")

    async with supervised(tmp_path / "up", small_part("jobs", diary)) as up:
        monkeypatch.setattr(up.told, "said", refuse)
        monkeypatch.setattr(up.told, "killed", refuse)
        await up.told.until("jobs", "running")
        up.supervisor.killed("jobs", 1)
        assert await up.stop() == 0
        assert entries(diary) == ["jobs started", "jobs stopped"]
        assert (tmp_path / "up" / "jobs.log").read_text() == "jobs says hello\n"
    (record,) = caplog.records
    assert "cannot be shown" in record.message
    assert "no such character" in caplog.text


@in_loop
async def test_a_keeper_that_fails_ends_everything_and_is_said(
    tmp_path: Path, diary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(said: Said, line: bytes) -> str:
        raise ValueError("nobody has thought of this")

    monkeypatch.setattr(Said, "add", fail)
    silent = Part(name="broker", command=("sleep", "1000"))
    async with supervised(tmp_path / "up", silent, small_part("jobs", diary, needs=("broker",))) as up:
        reason = await up.told.until("jobs", "stopped")
        assert reason == "whoever keeps it has failed: ValueError('nobody has thought of this')"
        with pytest.raises(ValueError, match="nobody has thought of this"):
            await up.ended()
        assert ("broker", "stopped", "") in up.told.states
        assert not [pid for pid in pids(diary) if is_alive(pid)]
