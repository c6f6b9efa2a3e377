"""Who writes the reply: rules that need no service, or a model behind an HTTP endpoint. CHAT_MODEL_URL decides."""

from __future__ import annotations

import json
import os
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp

from slipstream.slip import StepFailed


@dataclass(frozen=True)
class Prompt:
    question: str
    intent: str
    documents: list[dict[str, str]]
    """Each with `title` and `text`."""


class Model(Protocol):
    async def answer(self, prompt: Prompt) -> str: ...

    def pieces(self, prompt: Prompt) -> AsyncIterator[str]:
        """The same answer, as it comes."""


def choose_model() -> Model:
    url = os.environ.get("CHAT_MODEL_URL")
    if not url:
        return RuleModel()
    name, key = os.environ.get("CHAT_MODEL_NAME", "default"), os.environ.get("CHAT_MODEL_KEY", "")
    return HttpModel(url, name, key, timeout_s=float(os.environ.get("CHAT_MODEL_TIMEOUT", "30")))


class RuleModel:
    """Says what the best document says."""

    async def answer(self, prompt: Prompt) -> str:
        if prompt.intent == "greeting":
            return "Hello. Ask me about Brindle."
        if not prompt.documents:
            return "I do not know. Ask me about resets, pairing, schedules, leaks or the battery."
        return prompt.documents[0]["text"]

    async def pieces(self, prompt: Prompt) -> AsyncIterator[str]:
        for word in re.findall(r"\S+\s*", await self.answer(prompt)):
            yield word


class HttpModel:
    """An endpoint that takes `POST <url>/chat/completions`, as many servers of models do."""

    def __init__(self, url: str, name: str = "default", key: str = "", *, timeout_s: float = 30.0) -> None:
        self.url = url.rstrip("/") + "/chat/completions"
        self.name = name
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)

    async def answer(self, prompt: Prompt) -> str:
        return "".join([piece async for piece in self._ask(prompt, stream=False)])

    def pieces(self, prompt: Prompt) -> AsyncIterator[str]:
        return self._ask(prompt, stream=True)

    async def _ask(self, prompt: Prompt, *, stream: bool) -> AsyncIterator[str]:
        body = {"model": self.name, "messages": _messages(prompt), "stream": stream}
        try:
            async with (
                aiohttp.ClientSession(timeout=self._timeout, headers=self._headers) as session,
                session.post(self.url, json=body) as response,
            ):
                await _check(response)
                if not stream:
                    yield (await response.json())["choices"][0]["message"]["content"]
                    return
                async for line in response.content:
                    if piece := _piece(line.decode().strip()):
                        yield piece
        except TimeoutError as error:
            raise StepFailed("model_timeout", f"no answer after {self._timeout.total:g} s") from error
        except aiohttp.ClientConnectionError as error:
            raise StepFailed("model_away", str(error)) from error
        except (aiohttp.ClientError, KeyError, IndexError, TypeError, ValueError) as error:
            raise StepFailed("model_unclear", f"its answer is not understood: {error!r}", retryable=False) from error


async def _check(response: aiohttp.ClientResponse) -> None:
    if response.status == 200:
        return
    said = f"{response.status}: {(await response.text())[:200]}"
    if response.status == 429 or response.status >= 500:
        raise StepFailed("model_busy", said)  # retryable: the step is tried again, after a pause that grows
    raise StepFailed("model_refused", said, retryable=False)


def _messages(prompt: Prompt) -> list[dict[str, str]]:
    known = "\n".join(f"{document['title']}: {document['text']}" for document in prompt.documents)
    system = f"Answer in two sentences at most, only from what is known:\n{known or 'nothing'}"
    return [{"role": "system", "content": system}, {"role": "user", "content": prompt.question}]


def _piece(line: str) -> str:
    """Of a stream of events: `data: {"choices": [{"delta": {"content": "…"}}]}`, and `data: [DONE]` at its end."""
    data = line.removeprefix("data:").strip()
    if not line.startswith("data:") or data == "[DONE]":
        return ""
    event: dict[str, Any] = json.loads(data)
    return str(event["choices"][0]["delta"].get("content") or "")
