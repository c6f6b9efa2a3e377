"""Whether a statement only reads.

DuckDB can be kept from files outside of a folder, but not from writing to those inside. So what can write is told by
its words: COPY may stand inside of a SELECT (in WITH), after EXPLAIN ANALYZE, which does what it explains, and around a
PIVOT, which DuckDB takes for several statements whatever they do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from slipstream.pipeline.looking.answer import QueryRefused

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_READING = {"SELECT", "MULTI"}
"""DESCRIBE, SHOW and SUMMARIZE count as SELECT, and PIVOT as MULTI."""

_WRITING = ("copy", "create", "insert")
"""Words that make something, wherever they stand."""

_RUNNING = re.compile(r"query|json_execute_serialized_sql|\w+_external_resource(_type)?")
"""Functions that run what a text says, or that reach out."""

_TOLD = re.compile(rf"{'|'.join(_WRITING)}|{_RUNNING.pattern}", re.IGNORECASE)

_WORD = re.compile(r'[^\W\d]\w*|"(?:[^"]|"")*"')


def check_question(connection: DuckDBPyConnection, sql: str) -> None:
    """Raises QueryRefused for what is no question, and duckdb.Error for what nobody understands."""
    _check_letters(sql)
    kind, words = _kind(connection, sql), _words(sql)
    if kind == "EXPLAIN":
        kind = f"EXPLAIN of {inner}" if (inner := _kind(connection, _explained(sql, words))) not in _READING else inner
    if kind not in _READING:
        raise QueryRefused(f"tables are only read here, and this is {kind}: ask with SELECT, DESCRIBE or SUMMARIZE")
    for word in words:
        if word.text in _WRITING:
            raise QueryRefused(
                f"tables are only read here, and {word.text.upper()} writes: ask with SELECT, DESCRIBE or SUMMARIZE. "
                f'As the name of a column it is "{word.text}", in quotes'
            )
        if word.is_called and _RUNNING.fullmatch(word.text.strip('"')):
            raise QueryRefused(f"{word.text} runs what nobody has seen: ask for it with SELECT")


def _check_letters(sql: str) -> None:
    """DuckDB takes spaces of Unicode for spaces, and its tokenizer takes them for letters: a word could hide."""
    if any("\ud800" <= each <= "\udfff" for each in sql):
        raise QueryRefused("it has bytes in it that are no UTF-8, and is no text")
    is_unseen = any(not each.isprintable() and each not in "\t\n\r" for each in sql)
    if is_unseen and (hidden := _TOLD.search(sql)):
        raise QueryRefused(f"it has characters that cannot be seen, and {hidden[0]}: type it with plain spaces")


def _kind(connection: DuckDBPyConnection, sql: str) -> str:
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise QueryRefused("nothing is asked" if not statements else "one statement at a time")
    return statements[0].type.name


class _Word(msgspec.Struct, frozen=True):
    """A word of SQL or a name, in lower case, with its quotes where it has them; or a sign."""

    text: str
    at: int
    """In bytes."""
    is_called: bool
    """What follows is in brackets."""


def _words(sql: str) -> list[_Word]:
    """All but comments and values."""
    import duckdb  # noqa: PLC0415 - --help needs none of it

    encoded = sql.encode()
    tokens = [(at, kind.name) for at, kind in duckdb.tokenize(sql) if kind.name != "comment"]
    ends = [*(at for at, _ in tokens[1:]), len(encoded)]
    texts = [encoded[at:end].decode() for (at, _), end in zip(tokens, ends, strict=True)]
    found = []
    for (at, kind), text, following in zip(tokens, texts, [*texts[1:], ""], strict=True):
        if kind not in {"string_const", "numeric_const"}:
            word = _WORD.search(text)
            found.append(_Word(word[0].lower() if word else text[:1], at, following.startswith("(")))
    return found


def _explained(sql: str, words: Sequence[_Word]) -> str:
    """What stands after EXPLAIN, ANALYZE and options in brackets."""
    texts = [word.text for word in words]
    start = 2 if texts[1:2] == ["analyze"] else 1
    if texts[start : start + 1] == ["("] and texts[start + 1].strip('"') in {"analyze", "format"}:
        start = texts.index(")", start) + 1
    return sql.encode()[words[start].at :].decode()
