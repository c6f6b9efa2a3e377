"""What the console remembers of problems: since when each is there, and which a person has acknowledged.

It is kept in a file, so that a restart forgets nothing. A problem stays until it is resolved. One that a person has
acknowledged stays acknowledged until it is resolved or gets worse.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from slipstream.api.overview import Acknowledgement, Problem
from slipstream.console.problems import MARK_UNKNOWN, source_of
from slipstream.console.watch import Key, Still

log = logging.getLogger(__name__)

RESOLVED_AFTER_MS = 60_000
"""How long a problem must be absent to count as resolved: its source may be away for a moment."""


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    """One problem."""

    since_ms: int
    mark: int
    """How bad it was when it was seen, or acknowledged, last."""
    acknowledged: Acknowledgement | None = None


class _File(msgspec.Struct, frozen=True, kw_only=True):
    problems: dict[str, _Known] = {}
    groups: dict[str, dict[str, int]] = {}
    """Topic → group → when it last finished something, of those that stand still."""
    done: dict[str, dict[str, int]] = {}
    """Topic → group → its count of finished messages, of those that stand still."""


class Attention:
    """The memory of one console.

    Example:
        attention = Attention("slipstream-data/console.json")
        await attention.open()
        shown = attention.recall(problems, now_ms)
    """

    def __init__(self, path: str) -> None:
        """Without a path nothing is kept over a restart."""
        self._path = Path(path) if path else None
        self._known: dict[str, _Known] = {}
        self._absent_ms: dict[str, int] = {}
        """Since when each known problem has been absent."""
        self.still: dict[Key, Still] = {}
        """The groups that stood still when an earlier process ended."""
        self._saving = asyncio.Lock()
        self._written = b""
        self._has_failed = False

    async def open(self) -> None:
        """Read the file, if there is one."""
        if self._path is None:
            return
        try:
            found = msgspec.json.decode(await asyncio.to_thread(self._path.read_bytes), type=_File)
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("%s cannot be read, and acknowledged problems are shown again: %s", self._path, error)
            return
        self._known = found.problems
        self.still = {
            (topic, group): Still(ms, found.done[topic][group])
            for topic, groups in found.groups.items()
            for group, ms in groups.items()
            if group in found.done.get(topic, {})
        }

    def recall(self, problems: Sequence[Problem], now_ms: int, *, unseen: Collection[str] = ()) -> list[Problem]:
        """Return the problems with the time when each was first seen; those that are acknowledged come last.

        A known problem that is absent begins to count as resolved, unless its source is one of `unseen`: the sources
        that could not be asked."""
        for problem in problems:
            before = self._known.get(problem.key)
            if before is None:
                self._known[problem.key] = _Known(since_ms=now_ms, mark=max(0, problem.mark))
            elif problem.mark == MARK_UNKNOWN:
                continue
            elif before.acknowledged is None or problem.mark < before.mark:
                self._known[problem.key] = replace(before, mark=problem.mark)
            elif problem.mark > before.mark:
                self._known[problem.key] = replace(before, mark=problem.mark, acknowledged=None)
        self._resolve({problem.key for problem in problems}, unseen, now_ms)
        shown = [
            replace(problem, since_ms=known.since_ms, mark=known.mark, acknowledged=known.acknowledged)
            for problem in problems
            for known in (self._known[problem.key],)
        ]
        return sorted(shown, key=lambda problem: problem.acknowledged is not None)

    def _resolve(self, present: set[str], unseen: Collection[str], now_ms: int) -> None:
        for key in list(self._known):
            if key in present:
                self._absent_ms.pop(key, None)
            elif source_of(key) in unseen:
                continue
            elif now_ms - self._absent_ms.setdefault(key, now_ms) >= RESOLVED_AFTER_MS:
                del self._known[key], self._absent_ms[key]

    def acknowledge(self, key: str, acknowledgement: Acknowledgement | None) -> bool:
        """Note that a person knows of a problem, or no longer says so; return whether there is such a problem."""
        known = self._known.get(key)
        if known is None:
            return False
        self._known[key] = replace(known, acknowledged=acknowledgement)
        return True

    async def save(self, still: Mapping[Key, Still]) -> None:
        """Write the file if anything has changed. `still` are the groups that stand still."""
        if self._path is None:
            return
        async with self._saving:  # the later of two saves must be the one that stays
            await self._save(self._path, still)

    async def _save(self, path: Path, still: Mapping[Key, Still]) -> None:
        groups: dict[str, dict[str, int]] = {}
        done: dict[str, dict[str, int]] = {}
        for (topic, group), each in sorted(still.items()):
            groups.setdefault(topic, {})[group] = each.since_ms
            done.setdefault(topic, {})[group] = each.done
        content = msgspec.json.encode(_File(problems=self._known, groups=groups, done=done))
        if content == self._written:
            return
        try:
            await asyncio.to_thread(_write, path, content)
        except OSError as error:
            if not self._has_failed:
                log.warning("%s cannot be written, and a restart forgets what was acknowledged: %s", path, error)
            self._has_failed = True
            return
        self._written, self._has_failed = content, False


def _write(path: Path, content: bytes) -> None:
    """Replace the file as a whole. Two processes that share it by mistake do not mix their contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{os.getpid()}-{secrets.token_hex(4)}.new")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
