"""`POST /v2/decoded`: the bytes of a message of the streams of jobs, as a person can read them."""

from __future__ import annotations

import binascii
import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from slipstream.api.tables import Decoded, DecodeRequest
from slipstream.console.answers import Refused, json_answer, read_json
from slipstream.console.sources import Noun

DEAD = "dlq."
"""What the broker's own dead-letter topics start with."""


class Decoder(Noun):
    what = "messages of jobs"
    link = "#/topics"

    def __init__(self, namespace: str, prefix: str = "") -> None:
        self._namespace = namespace
        self._prefix = prefix
        """Of every topic of the bus."""

    def routes(self) -> list[BaseRoute]:
        return [Route("/v2/decoded", self.decode, methods=["POST"])]

    async def decode(self, request: Request) -> Response:
        from slipstream.jobs.errors import MalformedMessage  # noqa: PLC0415 - protobuf takes its time
        from slipstream.jobs.messages import decode, to_json  # noqa: PLC0415

        asked = await read_json(request, DecodeRequest)
        kinds = self._kinds()
        name = asked.topic.removeprefix(DEAD).removeprefix(self._prefix)
        if name not in kinds:
            raise Refused(
                "NOT_FOUND",
                f"nobody knows what the messages of {asked.topic} are made of; of {', '.join(kinds)} it is known",
            )
        try:
            data = binascii.a2b_base64(asked.value, strict_mode=True)
        except (binascii.Error, ValueError) as error:
            raise Refused("INVALID_ARGUMENT", f"value is not base64: {error}") from error
        try:
            message = decode(kinds[name], data)
        except MalformedMessage as error:
            raise Refused("INVALID_ARGUMENT", str(error)) from error
        return json_answer(Decoded(type=kinds[name].DESCRIPTOR.name, message=json.loads(to_json(message))))

    def _kinds(self) -> dict[str, Any]:
        from slipstream.jobs.messages import DeadLetterTask, DownloadTask, JobLog, JobStatus  # noqa: PLC0415
        from slipstream.jobs.streams import streams  # noqa: PLC0415

        ours = streams(self._namespace)
        return {
            ours.tasks.topic: DownloadTask,
            ours.status.topic: JobStatus,
            ours.logs.topic: JobLog,
            ours.dlq.topic: DeadLetterTask,
        }
