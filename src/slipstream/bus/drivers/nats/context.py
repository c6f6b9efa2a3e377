"""JetStream's API, asked so that neither an election nor a missing permission costs more time than it must."""

from __future__ import annotations

import asyncio
from typing import Any

from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.errors import ServiceUnavailableError

from slipstream.bus.drivers.nats.connection import Connection
from slipstream.bus.drivers.nats.errors import Denied

ASK_AGAIN_S = 0.5
"""After how long without an answer a request is sent again. While a leader is elected, nothing answers; a request that
was sent before is lost, and one that is sent as soon as there is a leader is answered in a millisecond."""
ASK_AGAIN_S_MAX = 1.0
REFUSED_PAUSE_S = 0.25
NOT_ENABLED = frozenset({10039, 10076})
"""Error codes of a server or an account that has no JetStream, which no waiting changes."""
ONCE = (".DELETE.", ".PURGE.")
"""Parts of the subjects of requests that are not sent twice: the second would find nothing."""


class NoAnswer(NatsTimeout):
    """JetStream has not answered in the time there was."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def __str__(self) -> str:
        return f"JetStream has not answered for {self._seconds:g} s; does its cluster have a leader?"


class Context(JetStreamContext):
    """nats-py's context, which sends a request again until it is answered, and learns when the server does not take it.

    `patience_s` is how long an answer is waited for: an election takes 4 to 9 seconds, nats-py's own 5 are too few.
    """

    def __init__(self, connection: Connection, patience_s: float) -> None:
        super().__init__(connection.nats)
        self._connection = connection
        self._patience_s = patience_s

    async def _api_request(self, req_subject: str, req: bytes = b"", timeout: float = 5) -> dict[str, Any]:  # noqa: ASYNC109
        loop = asyncio.get_running_loop()
        denied = loop.create_future()

        def on_denied(what: str, subject: str) -> None:
            if what == "publish" and subject == req_subject.lower() and not denied.done():
                denied.set_result(None)

        self._connection.on_denied.append(on_denied)
        asking: set[asyncio.Future[Any]] = set()
        try:
            return await self._ask_until_answered(req_subject, req, max(timeout, self._patience_s), denied, asking)
        finally:
            self._connection.on_denied.remove(on_denied)
            for each in asking:
                each.cancel()

    async def _ask_until_answered(
        self, subject: str, request: bytes, patience_s: float, denied: asyncio.Future[Any], asking: set[Any]
    ) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        once = any(part in subject for part in ONCE)
        pause_s = patience_s if once else ASK_AGAIN_S
        refusal: ServiceUnavailableError | None = None
        while (left_s := until - loop.time()) > 0:
            asking.add(asyncio.ensure_future(super()._api_request(subject, request, left_s)))
            done, _ = await asyncio.wait(
                {*asking, denied}, timeout=min(pause_s, left_s), return_when=asyncio.FIRST_COMPLETED
            )
            if denied in done:
                raise Denied(subject)
            for each in done:
                asking.discard(each)
                try:
                    answer: dict[str, Any] = each.result()
                except ServiceUnavailableError as error:
                    if once or not self._may_pass(error):
                        raise
                    refusal = error
                except NatsTimeout:
                    continue
                else:
                    return answer
            if done:
                await asyncio.wait({denied}, timeout=REFUSED_PAUSE_S)
            else:
                pause_s = min(pause_s * 1.5, ASK_AGAIN_S_MAX)
        raise refusal or NoAnswer(patience_s)

    def _may_pass(self, error: ServiceUnavailableError) -> bool:
        """Return whether JetStream may answer later. A server that has JetStream, and whose API does not answer, is
        waiting for a leader. A server that never had it says so in its greeting, or by an error code."""
        if error.err_code in NOT_ENABLED:
            return False
        return error.err_code is not None or bool(self._nc._server_info.get("jetstream"))
