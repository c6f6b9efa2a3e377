"""The steps of the demonstration: a chat about an invented product, and refunds that somebody has to approve."""

from __future__ import annotations

import os
import re
import zlib
from typing import Any

from slipstream.extras import install_command, is_installed
from slipstream.slip import Reject, StepFailed, Work, Worker

worker = Worker("demo")

JOB_TYPE = "attachments"
FAILING_ONE_IN = 4
"""So many messages, on average, meet a model that is busy, and are answered at the second attempt."""

GREETING = re.compile(r"\W*(hello|hi|hey|good (morning|evening))\b", re.IGNORECASE)

DOCUMENTS = {
    "Reset": "To reset Brindle, hold the round button for ten seconds until the ring turns white.",
    "Pairing": "To pair Brindle with a phone, press the round button once and open the app within two minutes.",
    "Battery": "The battery lasts about a year. The ring blinks red when a week of power is left.",
    "Leaks": "If water drips from a valve, close the tap, turn the valve out by hand and clean its seal.",
    "Winter": "Empty the tank and bring Brindle inside before the first frost. Ice breaks the pump.",
}
"""What is known about Brindle, a box that waters plants, which does not exist."""


# Chat


@worker.step("intent")
async def intent(work: Work) -> dict[str, str]:
    text = _text(work.payload)
    return {"intent": "greeting" if GREETING.match(text) else "question"}


def _text(payload: Any) -> str:
    text = payload.get("text") if isinstance(payload, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise Reject("a message without words")  # a dead letter: to try again would not help
    return text


@worker.step("retrieval")
def retrieval(work: Work) -> None:  # not async: it runs in a thread
    asked = set(re.findall(r"[a-z]{4,}", work.payload["text"].lower()))
    found = max(DOCUMENTS, key=lambda title: len(asked & set(re.findall(r"[a-z]{4,}", _document(title)))))
    work.payload["documents"] = [found] if asked & set(re.findall(r"[a-z]{4,}", _document(found))) else []
    work.note({"found": work.payload["documents"]})


def _document(title: str) -> str:
    return f"{title} {DOCUMENTS[title]}".lower()


@worker.step("reply")
async def reply(work: Work) -> dict[str, str]:
    if work.attempt < _failures(work):
        raise StepFailed("model_busy", "503: the model has no place for another conversation")
    if work.payload["intent"] == "greeting":
        return {"reply": "Hello. Ask me about Brindle."}
    found = work.payload.get("documents")
    return {"reply": DOCUMENTS[found[0]] if found else "I do not know. Ask me about resets, leaks or the battery."}


def _failures(work: Work) -> int:
    """How many attempts fail: as the message says, or now and then; always the same for one message."""
    wanted = work.payload.get("failures")
    if isinstance(wanted, int):
        return wanted
    return int(zlib.crc32(work.correlation_id.encode()) % FAILING_ONE_IN == 0)


@worker.step("fetch")
async def fetch(work: Work) -> dict[str, Any]:
    """Download the attachment with a job, once, however often the step is tried."""
    if not is_installed("jobs"):
        message = f"download jobs are not installed; to add them: {install_command('jobs')}"
        raise StepFailed("jobs_missing", message, retryable=False)
    from slipstream.jobs.client import JobsClient, ServiceError, ServiceUnreachable  # noqa: PLC0415 - an extra

    manifest = {"manifest_version": "v1", "resources": [{"id": "attachment", "url": work.payload["attachment"]}]}
    try:
        async with JobsClient(_jobs_url(), os.environ.get("JOBS_TOKEN", "")) as jobs:
            accepted = await jobs.submit(JOB_TYPE, manifest, idempotency_key=work.idempotency_key("fetch"))
            work.note({"job": accepted.job_id})
            async for _ in jobs.logs(accepted.job_id, follow=True):
                pass  # it ends with the job
            job = await jobs.job(accepted.job_id)
    except ServiceUnreachable as error:
        raise StepFailed("jobs_away", str(error)) from error
    except ServiceError as error:
        raise StepFailed("jobs_refused", str(error), retryable=error.status >= 500) from error
    return {"jobId": job.job_id, "fetched": job.resources_completed}


def _jobs_url() -> str:
    return os.environ.get("JOBS_URL", "").strip() or "http://127.0.0.1:8090"


@worker.step("formatter")
async def formatter(work: Work) -> dict[str, str]:
    titles = work.payload.get("documents") or []
    source = f" (see: {titles[0]})" if titles else ""
    kept = " Your attachment is stored." if work.payload.get("fetched") else ""
    return {"reply": work.payload["reply"] + source + kept}


@worker.step("egress")
async def egress(work: Work) -> dict[str, str]:
    """The last look before it leaves; the router delivers it then, to whoever asked."""
    return {"reply": " ".join(str(work.payload.get("reply", "")).split())}


# Refunds


@worker.step("reserve")
async def reserve(work: Work) -> None:
    amount = work.payload.get("amount")
    if not isinstance(amount, int | float) or amount <= 0:
        raise Reject(f"a refund of {amount!r} makes no sense")
    work.undo_with({"account": work.payload.get("account", ""), "amount": amount})
    work.note(f"{amount} reserved")


@worker.undo("reserve")
async def release(work: Work) -> None:
    work.note(f"{work.record['amount']} released")


@worker.step("pay")
async def pay(work: Work) -> dict[str, str]:
    if work.payload.get("account") == "closed":
        raise Reject("the account is closed")
    return {"reply": f"{work.payload['amount']} paid to {work.payload.get('account') or 'you'}"}
