"""What an operator does with single messages of a group: retry, reject, discard, extend, release."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import msgspec

from slipstream.api import (
    ExtendLeasesRequest,
    Failure,
    MessagesRequest,
    MessageState,
    OperationResponse,
    Place,
    RejectRequest,
    ReleasedLeases,
    ReleaseOwnerRequest,
    ReleaseOwnerResponse,
)
from slipstream.broker import Broker, BrokerError, Group, InvalidArgument, Lease, Progress
from slipstream.server.v2.codec import error_code
from slipstream.server.v2.endpoint import Call, Endpoint, Handler
from slipstream.server.v2.messages import attempt_infos

log = logging.getLogger(__name__)

PLACES_LOGGED = 10


async def show(call: Call) -> MessageState:
    engine = call.engine
    group = engine.broker.group(call.path("topic"), call.path("group"))
    partition, offset = int(call.path("partition")), int(call.path("offset"))
    lease = engine.broker.operations.find(group, partition, offset)
    return MessageState(
        topic=group.topic.name,
        group=group.name,
        partition=partition,
        offset=offset,
        state="undelivered" if lease is None else state_of(group.progress[partition], lease, engine.now_ms()),
        attempts=0 if lease is None else lease.attempts,
        owner="" if lease is None else lease.owner,
        until_ms=None if lease is None else lease.until_ms,
        history=[] if lease is None else attempt_infos(lease.evidence),
    )


def state_of(progress: Progress, lease: Lease, now_ms: int) -> Literal["delayed", "leased", "waiting", "ready"]:
    if lease.offset in progress.leases:
        return "leased"
    if not lease.attempts:
        return "delayed"
    return "waiting" if lease.until_ms > now_ms else "ready"


Operate: TypeAlias = Callable[[Broker, int, Group, int, int, Any], object]
"""Does one operation to the message at (partition, offset) of a group, as the request says."""


def _handler(operation: str, operate: Operate) -> Handler:
    """Return the handler that does an operation to each message; an error of one does not keep the others."""

    async def handle(call: Call) -> OperationResponse:
        request = call.body
        places: list[Place] = request.messages
        if not 1 <= len(places) <= call.limits.batch_messages:
            raise InvalidArgument(
                f"1 to {call.limits.batch_messages} messages (max_batch_messages) fit in a request, not {len(places)}"
            )
        topic, name = call.path("topic"), call.path("group")
        done: list[Place] = []
        failed: list[Failure] = []

        def command(broker: Broker, now_ms: int) -> None:
            group = broker.group(topic, name)
            for place in places:
                try:
                    operate(broker, now_ms, group, place.partition, place.offset, request)
                except BrokerError as error:
                    failed.append(Failure(place.partition, place.offset, error_code(error), error.message))
                else:
                    done.append(place)

        await call.engine.perform(command)
        if done:
            shown = ", ".join(f"{place.partition}/{place.offset}" for place in done[:PLACES_LOGGED])
            more = f" and {len(done) - PLACES_LOGGED} more" if len(done) > PLACES_LOGGED else ""
            said = f": {request.reason[:200]}" if isinstance(request, RejectRequest) and request.reason else ""
            log.warning("operator: %s of %s%s of %s for group %s%s", operation, shown, more, topic, name, said)
        return OperationResponse(len(done), failed)

    return handle


async def release_owner(call: Call) -> ReleaseOwnerResponse:
    request: ReleaseOwnerRequest = call.body
    owner = call.path("owner")
    released = await call.engine.perform(
        lambda broker, now_ms: broker.operations.release_owner(now_ms, owner, request.topic or "", request.group or "")
    )
    groups = [ReleasedLeases(group.topic.name, group.name, count) for group, count in released.items()]
    total = sum(each.released for each in groups)
    if total:
        log.warning("operator: release of all leases of owner %s: %d in %d groups", owner, total, len(groups))
    return ReleaseOwnerResponse(owner, total, groups)


_MESSAGES = "/v2/topics/{topic}/groups/{group}/messages"

_OPERATIONS: list[tuple[str, str, type[msgspec.Struct], Operate]] = [
    (
        "retry",
        "Retry messages now",
        MessagesRequest,
        lambda broker, now_ms, group, partition, offset, _: broker.operations.retry(now_ms, group, partition, offset),
    ),
    (
        "reject",
        "Dead-letter messages with a reason",
        RejectRequest,
        lambda broker, now_ms, group, partition, offset, request: broker.operations.reject(
            now_ms, group, partition, offset, request.reason
        ),
    ),
    (
        "discard",
        "Finish messages without handling them",
        MessagesRequest,
        lambda broker, now_ms, group, partition, offset, _: broker.operations.discard(now_ms, group, partition, offset),
    ),
    (
        "extend",
        "Extend leases as an operator",
        ExtendLeasesRequest,
        lambda broker, now_ms, group, partition, offset, request: broker.operations.extend(
            now_ms, group, partition, offset, request.lease_ms
        ),
    ),
    (
        "release",
        "End leases without counting the attempts",
        MessagesRequest,
        lambda broker, now_ms, group, partition, offset, _: broker.operations.release(now_ms, group, partition, offset),
    ),
]

ENDPOINTS = [
    Endpoint(
        method="GET",
        path=_MESSAGES + "/{partition:natural}/{offset:natural}",
        summary="Show where a message of a group stands",
        answer=MessageState,
        handler=show,
    ),
    *(
        Endpoint(
            method="POST",
            path=f"{_MESSAGES}/{operation}",
            summary=summary,
            body=body,
            answer=OperationResponse,
            handler=_handler(operation, operate),
        )
        for operation, summary, body, operate in _OPERATIONS
    ),
    Endpoint(
        method="POST",
        path="/v2/owners/{owner}/release",
        summary="End all leases of an owner",
        body=ReleaseOwnerRequest,
        answer=ReleaseOwnerResponse,
        handler=release_owner,
    ),
]
