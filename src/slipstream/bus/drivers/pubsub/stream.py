"""A streaming pull: one thread that reads what the engine sends, and opens the stream again when it ends.

The real service ends each stream after half an hour or so; and then there are networks.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from google.api_core.exceptions import NotFound

from slipstream.bus.drivers.pubsub.calls import StreamingPullRequest, route, streaming_pull
from slipstream.bus.drivers.pubsub.errors import GOOGLE_ERRORS, as_google, bus_error, is_passing
from slipstream.bus.errors import BusError

log = logging.getLogger(__name__)

HEARTBEAT_S = 30.0
"""Google's clients do the same; without it, something in between takes the stream for dead."""
LAST_MESSAGES_S = 1.0
"""How long the end of a stream is waited for, after we have ended our side."""
PAUSE_S_FIRST = 0.1
PAUSE_S_MAX = 5.0
PAUSE_S_MAX_REFUSED = 30.0
"""Where it is not a matter of the network: somebody has to give permission back."""


class Stream:
    """Calls `arrive`, in its thread, with what the engine sends. It reads no further while `max_outstanding` messages
    are not released: the engine is asked to send no more, but not all emulators know that."""

    def __init__(
        self,
        channel: Any,
        subscription: str,
        *,
        max_outstanding: int,
        lease_s: int,
        arrive: Callable[[Sequence[Any]], None],
        restore: Callable[[], object] | None,
    ) -> None:
        self._pull = streaming_pull(channel)
        self._subscription = subscription
        self._max_outstanding = max_outstanding
        self._lease_s = lease_s
        self._arrive = arrive
        self._restore = restore
        """Makes the subscription again that somebody has deleted; None where that is not ours to do."""
        self._client_id = str(uuid.uuid4())
        self._call: Any = None
        self._end: queue.SimpleQueue[None] | None = None
        """Whatever is put there is the end of our side of the stream."""
        self._outstanding = 0
        self._freed = 0
        """Messages that this stream has delivered, that are still on lease and no longer counted here."""
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self.trouble = ""
        """Why there are no messages, as long as there are none; in its thread, and read by any."""
        self._came = False
        """Whether anything did, since the stream was opened."""
        self._thread = threading.Thread(target=self._run, name=f"slipstream-pubsub {subscription}", daemon=True)
        self._thread.start()

    def release(self, count: int) -> None:
        """So many messages are settled, or lost to us."""
        with self._changed:
            self._outstanding -= count
            assert self._outstanding >= 0, "more messages were released than had arrived"
            self._changed.notify()

    def free_place(self) -> None:
        """Count one message no longer that stays on lease here.

        The engine goes on counting it, for as long as this stream is open. A new stream starts from nothing, so after
        half of the places the stream is ended in good order, and `_run` opens the next.
        """
        with self._changed:
            self._outstanding -= 1
            self._freed += 1
            if self._freed >= max(1, self._max_outstanding // 2) and self._end is not None:
                self._end.put(None)
                self._end = None
            self._changed.notify()

    def take_place(self) -> None:
        """Count it again."""
        with self._changed:
            self._outstanding += 1

    def stop(self) -> None:
        """Nothing arrives any more when this returns. The engine is asked to end the stream, and given a moment: what
        is on its way when we cut it would come to somebody else only when its lease is over."""
        with self._changed:
            self._stopped.set()
            if self._end is not None:
                self._end.put(None)
            self._changed.notify()
        self._thread.join(LAST_MESSAGES_S)
        with self._changed:
            if self._call is not None:
                self._call.cancel()
        self._thread.join()

    # In its thread

    def _run(self) -> None:
        pause_s = PAUSE_S_FIRST
        while not self._stopped.is_set():
            self._came = False
            error: BaseException | None = None
            try:
                self._read()
            except GOOGLE_ERRORS as failure:
                error = failure
            except Exception as failure:  # noqa: BLE001 - a subscriber that is deaf and says nothing helps nobody
                error = failure
            if self._stopped.is_set():
                return
            if self._came:
                pause_s = PAUSE_S_FIRST
                if error is None or is_passing(error):
                    log.debug("%s: the stream ended, and is opened again: %s", self._subscription, error)
                    continue
            if error is not None and self._mend(error):
                continue
            with self._changed:
                # Not all subscribers at the same time.
                self._changed.wait_for(self._stopped.is_set, pause_s * random.uniform(0.5, 1.0))
            pause_s = min(pause_s * 2, PAUSE_S_MAX if error is None or is_passing(error) else PAUSE_S_MAX_REFUSED)

    def _read(self) -> None:
        """Until the stream ends."""
        self._wait_for_room()
        end: queue.SimpleQueue[None] = queue.SimpleQueue()
        with self._changed:
            if self._stopped.is_set():
                return
            self._end = end
            self._freed = 0
            self._call = call = self._pull(self._requests(end), metadata=route("subscription", self._subscription))
        try:
            for response in call:
                self._came = True
                self._recover()
                self._hand_over(response.received_messages)
                self._wait_for_room()
        finally:
            call.cancel()
            end.put(None)  # lets go of the thread that gRPC reads the requests with

    def _requests(self, end: queue.SimpleQueue[None]) -> Iterator[Any]:
        yield StreamingPullRequest(
            subscription=self._subscription,
            client_id=self._client_id,
            stream_ack_deadline_seconds=self._lease_s,
            max_outstanding_messages=self._max_outstanding,
        )
        while True:
            try:
                end.get(timeout=HEARTBEAT_S)
            except queue.Empty:
                yield StreamingPullRequest()
            else:
                return

    def _hand_over(self, messages: Sequence[Any]) -> None:
        with self._changed:
            self._outstanding += len(messages)
            self._arrive(messages)

    def _wait_for_room(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._stopped.is_set() or self._outstanding < self._max_outstanding)

    def _mend(self, error: BaseException) -> bool:
        """Says that there is trouble, once; and whether it is over by now."""
        failure = bus_error(error, f"{self._subscription} gives no messages")
        is_deleted = isinstance(as_google(error), NotFound)
        is_news, self.trouble = not self.trouble, str(failure)
        if is_news:
            level = logging.WARNING if is_passing(error) or (is_deleted and self._restore) else logging.ERROR
            log.log(level, "pubsub: %s; trying on", failure)
        if is_deleted and self._restore is not None:
            try:
                self._restore()
            except BusError as still:
                log.debug("pubsub: %s is not restored: %s", self._subscription, still)
            else:
                log.warning("pubsub: %s was deleted, and is made again", self._subscription)
                self.trouble = ""
                return True
        return False

    def _recover(self) -> None:
        if self.trouble:
            self.trouble = ""
            log.info("pubsub: %s gives messages again", self._subscription)
