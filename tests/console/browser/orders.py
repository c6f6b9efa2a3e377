"""A shop for the console to look at: orders that fail and are tried again, branch, wait for somebody, and are undone.

What happens to an order stands in its payload: `failures` of its charge, `broken` for a step that fails for good,
`total` above 500 for one that a manager approves, `pace` for how long steps take, in seconds; by default no time. Of a
parcel, `slow` is for how long it is stamped.
"""

from __future__ import annotations

import asyncio

from slipstream.slip import Reject, Router, RouteTable, StepFailed, Work, Worker

ROUTES = {
    "order.v1": {
        "steps": [
            "validate",
            {"id": "charge", "max_attempts": 4},
            {"id": "prepare", "parallel": {"warehouse": ["reserve", "pick"], "papers": ["invoice"]}},
            {"id": "manager", "when": {">": [{"var": "payload.total"}, 500]}, "wait": "approval"},
            "ship",
            {"id": "notify", "optional": True, "max_attempts": 1},
        ]
    },
    "parcel.v1": {"steps": ["stamp", "pack"]},
    "refund.v1": {"steps": ["validate", {"id": "manager", "wait": "approval"}, "ship"]},
}

router = Router(RouteTable.of({"routes": ROUTES}))
worker = Worker("shop")


@worker.step("validate")
async def validate(work: Work) -> dict[str, bool]:
    await _take(work, 0.1)
    return {"valid": True}


@worker.step("charge")
async def charge(work: Work) -> dict[str, str]:
    await _take(work, 0.9)
    if work.attempt < work.payload.get("failures", 0):
        raise StepFailed("bank_timeout", "the bank has not answered within 2 s")
    work.undo_with({"amount": work.payload.get("total", 0)})
    return {"payment": "p-4711"}


@worker.undo("charge")
async def refund(work: Work) -> None:
    await _take(work, 0.5)
    work.note(f"{work.record['amount']} given back")


@worker.step("reserve")
async def reserve(work: Work) -> None:
    await _take(work, 0.4)
    work.undo_with({"shelf": "B7"})


@worker.undo("reserve")
async def put_back(work: Work) -> None:
    await _take(work, 0.3)


@worker.step("pick")
async def pick(work: Work) -> None:
    await _take(work, 1.2)


@worker.step("invoice")
async def invoice(work: Work) -> None:
    await _take(work, 0.6)


@worker.step("ship")
async def ship(work: Work) -> dict[str, str]:
    await _take(work, 0.7)
    if work.payload.get("broken") == "ship":
        raise Reject("the address has no street")
    return {"parcel": "x-99"}


@worker.step("stamp")
async def stamp(work: Work) -> None:
    await asyncio.sleep(work.payload.get("slow", 0))


@worker.step("pack")
async def pack(work: Work) -> None:
    work.note("in a box")


@worker.step("notify")
async def notify(work: Work) -> None:
    await _take(work, 0.2)
    if work.payload.get("broken") == "notify":
        raise StepFailed("mail_refused", "550 no such mailbox")


async def _take(work: Work, share: float) -> None:
    await asyncio.sleep(work.payload.get("pace", 0) * share)
