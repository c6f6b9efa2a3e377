"""The processes that `slipstream up` runs, as it says itself in a file."""

from __future__ import annotations

import asyncio
import os
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
    pid: int = 0


class PartsFile:
    """Read when it is asked for; it is replaced by a rename, so never half. Without a path there are no parts."""

    def __init__(self, path: str) -> None:
        self._path = path

    def routes(self) -> list[BaseRoute]:
        return [Route("/v2/parts", self.list_parts, methods=["GET"])]

    async def list_parts(self, request: Request) -> Response:
        return json_answer(PartList(await self.read()))

    async def read(self) -> list[Part]:
        """Raises Refused. None before they are started, or where everybody starts them as they like."""
        return await asyncio.to_thread(self._read) if self._path else []

    def _read(self) -> list[Part]:
        try:
            found = msgspec.json.decode(Path(self._path).read_bytes(), type=_File)
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Refused("UNAVAILABLE", f"{self._path} does not say which parts run: {error}") from error
        if found.pid and not _is_there(found.pid):
            reason = "slipstream up does not run any more"
            return [replace(part, state="stopped", pid=None, reason=reason) for part in found.parts]
        return found.parts


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # somebody else's, but there
    return True
