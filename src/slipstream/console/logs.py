"""What the parts have logged about a slip or a job, found in the files that `slipstream up` keeps of what they say."""

from __future__ import annotations

import asyncio
import collections
import re
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.logs import LogAnswer, LogQuery, PartLine
from slipstream.console.answers import Refused, json_answer, read_query

TAIL_BYTES = 16 << 20
"""Of a file, from its end: what is looked for is mostly of today, and somebody waits for it."""
LINE_MAX = 4_000


class PartLogs:
    """Beside the file of the parts; without one there are none."""

    def __init__(self, parts: str) -> None:
        self._folder = Path(parts).parent if parts else None

    def routes(self) -> list[BaseRoute]:
        return [Route("/v2/logs", self.find, methods=["GET"])]

    async def find(self, request: Request) -> Response:
        query = read_query(request, LogQuery)
        return json_answer(await asyncio.to_thread(self._find, query))

    def _find(self, query: LogQuery) -> LogAnswer:
        if self._folder is None:
            return LogAnswer(kept=False, lines=[])
        try:
            files = sorted(self._folder.glob("*.log"))
            found = [line for file in files for line in lines_about(file, query.about, query.limit)]
        except OSError as error:
            raise Refused("UNAVAILABLE", f"the logs in {self._folder} cannot be read: {error}") from error
        return LogAnswer(kept=bool(files), lines=found)


def lines_about(file: Path, about: str, limit: int) -> list[PartLine]:
    """The newest that have the id in them, and not only as a part of a longer one: `o-1` is not in `o-17`, and is in
    `o-1/label`, which is a branch of it."""
    pattern = re.compile(rb"(?<![\w-])" + re.escape(about.encode()) + rb"(?![\w-])")
    newest: collections.deque[PartLine] = collections.deque(maxlen=limit)
    for path in (*_set_aside(file), file):
        try:
            with path.open("rb") as lines:
                lines.seek(max(0, path.stat().st_size - TAIL_BYTES))
                for line in lines:
                    if pattern.search(line):
                        newest.append(PartLine(file.stem, line.decode(errors="replace").rstrip("\r\n")[:LINE_MAX]))
        except FileNotFoundError:
            continue  # none was set aside yet, or it was in this moment
    return list(newest)


def _set_aside(file: Path) -> list[Path]:
    """As many as are kept (UP_LOG_FILES), the oldest first: `slips.log.2`, `slips.log.1`."""
    there = {path.name: path for path in file.parent.iterdir()}
    numbers = [int(found[1]) for name in there if (found := re.fullmatch(rf"{re.escape(file.name)}\.(\d+)", name))]
    return [there[f"{file.name}.{number}"] for number in sorted(numbers, reverse=True)]
