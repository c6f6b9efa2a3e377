"""The steps of a chat message, each a function. They could as well be services of their own, in five processes."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

from documents import Library
from model import Model, Prompt
from slipstream.slip import Reject, Work, Worker

GREETING = re.compile(r"\W*(hello|hi|hey|good (morning|evening))\b", re.IGNORECASE)

LINE_CHARS = 500
"""What a line of the chat has room for."""


def make_worker(model: Model, library: Library) -> Worker:
    worker = Worker("chat")

    @worker.step("intent")
    async def intent(work: Work) -> dict[str, str]:
        text = work.payload["text"].strip()
        if not text:
            raise Reject("a message without words")  # a dead letter: to try again would not help
        return {"intent": "greeting" if GREETING.match(text) else "question"}

    @worker.step("retrieval")
    def retrieval(work: Work) -> None:  # not async: it runs in a thread
        found = library.search(work.payload["text"])
        work.payload["documents"] = [asdict(document) for document in found]
        work.note({"found": [document.id for document in found]})

    @worker.step("reply")
    async def reply(work: Work) -> dict[str, str] | None:
        payload = work.payload
        prompt = Prompt(payload["text"], payload["intent"], payload.get("documents", []))
        if not payload.get("stream"):
            return {"reply": await model.answer(prompt)}
        await send_pieces(work, model, prompt)
        return None  # the aggregator puts the reply into the payload

    @worker.step("formatter")
    async def formatter(work: Work) -> dict[str, str]:
        titles = [document["title"] for document in work.payload.get("documents", [])]
        source = f" (see: {titles[0]})" if titles else ""
        return {"reply": work.payload["reply"].strip() + source}

    @worker.step("egress")
    async def egress(work: Work) -> dict[str, str]:
        """The last look before it leaves; the router delivers it then, to whoever asked."""
        line = " ".join(work.payload["reply"].split())
        return {"reply": line if len(line) <= LINE_CHARS else line[: LINE_CHARS - 1] + "…"}

    worker.aggregator(timeout=90)
    return worker


async def send_pieces(work: Work, model: Model, prompt: Prompt) -> None:
    """That a piece was the last is known when no other has come, so one is always held back."""
    index, held = 0, ""
    async for piece in model.pieces(prompt):
        if held:
            await work.emit_chunk(index, held)
            index += 1
        held = piece
    await work.emit_chunk(index, held, total=index + 1)


def open_library() -> Library:
    return Library.load(Path(__file__).parent / "documents.toml")
