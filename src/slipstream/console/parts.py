"""The processes that `slipstream up` runs, as it says itself in a file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.overview import Part, PartList
from slipstream.console.answers import Refused, json_answer


class _File(msgspec.Struct, frozen=True):
    parts: list[Part]
    pid: int


class PartsFile:
    """Read when it is asked for; it is replaced by a rename, so never half. Without a path there are no parts."""

    def __init__(self, path: str, is_current: Callable[[Path, int], bool]) -> None:
        """`is_current`: whether the process of that number, which wrote the file, still runs."""
        self._path = path
        self._is_current = is_current

    def routes(self) -> list[BaseRoute]:
        return [Route("/v2/parts", self.list_parts, methods=["GET"])]

    async def list_parts(self, request: Request) -> Response:
        return json_answer(PartList(await self.read()))

    async def read(self) -> list[Part]:
        """Raises Refused. None before they are started, or where everybody starts them as they like."""
        return await asyncio.to_thread(self._read) if self._path else []

    def _read(self) -> list[Part]:
        path = Path(self._path)
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_File)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Refused("UNAVAILABLE", f"{self._path} does not say which parts run: {error}") from error
        if not self._is_current(path, found.pid):
            reason = "slipstream up does not run any more"
            return [replace(part, state="stopped", pid=None, reason=reason) for part in found.parts]
        return found.parts
