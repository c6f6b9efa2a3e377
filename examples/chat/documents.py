"""A small library: which documents are about a question, by BM25."""

from __future__ import annotations

import math
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

K1, B = 1.2, 0.75  # the usual: how soon a repeated word stops counting, and how much long documents are discounted
COMMON = set(re.findall(r"\w+", "a an and are by can do does for how i in is it me my of on or the to what when with"))


@dataclass(frozen=True)
class Document:
    id: str
    title: str
    text: str


class Library:
    def __init__(self, documents: list[Document]) -> None:
        self._documents = documents
        self._words = [Counter(words(f"{document.title} {document.text}")) for document in documents]
        self._mean_length = sum(found.total() for found in self._words) / len(documents)
        holding = Counter(word for found in self._words for word in found)
        count = len(documents)
        self._weight = {word: math.log(1 + (count - n + 0.5) / (n + 0.5)) for word, n in holding.items()}

    @classmethod
    def load(cls, path: Path) -> Library:
        return cls([Document(**each) for each in tomllib.loads(path.read_text())["documents"]])

    def search(self, question: str, limit: int = 2) -> list[Document]:
        """The best first; those that share no word with the question are left out."""
        asked = words(question)
        scores = [sum(self._score(found, word) for word in asked) for found in self._words]
        order = sorted(range(len(scores)), key=lambda index: -scores[index])
        return [self._documents[index] for index in order[:limit] if scores[index] > 0]

    def _score(self, found: Counter[str], word: str) -> float:
        if word not in found:
            return 0.0
        length = 1 - B + B * found.total() / self._mean_length
        return self._weight[word] * found[word] * (K1 + 1) / (found[word] + K1 * length)


def words(text: str) -> list[str]:
    """Without those that every text has, and without the s of a plural."""
    found = re.findall(r"[a-z]+", text.lower())
    return [word.removesuffix("s") for word in found if word not in COMMON]
