"""Every value of a TOML file has its line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.slip.routes.problems import Place
from slipstream.slip.routes.toml_lines import lines_of_toml

FILE = '''\
# routes
version = 1

[routes."chat.message.v1"]   # a heading = [with] {everything}
timeout = "5m"

[[routes."chat.message.v1".steps]]
id = "retrieval"
when = { and = [
    { var = "payload.memory.enabled" },   # ] }
    { "==" = [{ var = "payload.channel" }, "#\\"]x"] },
] }
[routes."chat.message.v1".steps.attributes]
priority = """
[[not.a.heading]]
key = 1"""

[[routes."chat.message.v1".steps]]
id = 'boss'
parallel.geo = [
  "geo-lookup",

  "score"]

[routes.'timer']
steps = ["a", {id = "b"}]
since = 1979-05-27 07:32:00
'''

CHAT: Place = ("routes", "chat.message.v1")


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("version",), 2),
        (CHAT, 4),
        ((*CHAT, "timeout"), 5),
        ((*CHAT, "steps", 0), 7),
        ((*CHAT, "steps", 0, "when"), 9),
        ((*CHAT, "steps", 0, "when", "and", 0, "var"), 10),
        ((*CHAT, "steps", 0, "when", "and", 1), 11),
        ((*CHAT, "steps", 0, "attributes"), 13),
        ((*CHAT, "steps", 0, "attributes", "priority"), 14),
        ((*CHAT, "steps", 1), 18),
        ((*CHAT, "steps", 1, "id"), 19),
        ((*CHAT, "steps", 1, "parallel", "geo"), 20),
        ((*CHAT, "steps", 1, "parallel", "geo", 0), 21),
        ((*CHAT, "steps", 1, "parallel", "geo", 1), 23),
        (("routes", "timer"), 25),
        (("routes", "timer", "steps", 1, "id"), 26),
        (("routes", "timer", "since"), 27),
    ],
)
def test_a_value_stands_in_its_line(place: Place, line: int) -> None:
    assert lines_of_toml(FILE)[place] == line


def places(value: object, place: Place = ()) -> Iterator[Place]:
    yield place
    if isinstance(value, dict):
        for key, each in value.items():
            yield from places(each, (*place, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from places(each, (*place, index))


def test_every_value_is_found_and_no_other() -> None:
    assert set(lines_of_toml(FILE)) == set(places(tomllib.loads(FILE)))


# Values are written in every way TOML has for them; each of the strings would be something else outside its quotes.
KEYS = st.sampled_from(["a", "b-c", '"x.y"', "'[z]'", '"= \\" #"', "p.q", 'r."s.t"'])
SCALARS = st.sampled_from(
    ["1", "-2.5e3", "true", '"]"', "'}'", '"""\n[[x]]\ny = 1"""', "'''a''b'''''", '""', "1979-05-27 07:32:00", '"\\\\"']
)
SPACES = st.sampled_from(["", " ", "\t"])
BREAKS = st.sampled_from(["", " ", "\n", " # ] } \" '\n", "\n\n"])


def lists(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    written = st.tuples(BREAKS, values, BREAKS).map("".join)
    return st.tuples(st.lists(written, max_size=3), st.booleans()).map(
        lambda each: "[" + ",".join(each[0]) + ("," if each[1] and each[0] else "") + "]"
    )


def inline_tables(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(KEYS, SPACES, values)
    return st.lists(pair, max_size=3, unique_by=lambda each: each[0]).map(
        lambda pairs: "{" + ", ".join(f"{key}{space}={space}{value}" for key, space, value in pairs) + "}"
    )


VALUES = st.recursive(SCALARS, lambda values: lists(values) | inline_tables(values), max_leaves=6)
PAIRS = st.lists(st.tuples(KEYS, SPACES, VALUES), max_size=4, unique_by=lambda each: each[0]).map(
    lambda pairs: "".join(f"{key}{space}= {value} # = [\n" for key, space, value in pairs)
)
HEADINGS = st.sampled_from(["[t1]", '[ t2 . "u.v" ]', "[[l1]]", "[[l1]]", "[l1.inside]", "[[l1.deeper]]", "[['l2'.x]]"])


@settings(max_examples=60)
@given(PAIRS, st.lists(st.tuples(HEADINGS, PAIRS), max_size=5))
def test_whatever_is_written_every_value_is_found(top: str, tables: list[tuple[str, str]]) -> None:
    text = top + "".join(f"{heading}\n{pairs}" for heading, pairs in tables)
    try:
        value = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return  # the same table twice
    lines = lines_of_toml(text)
    assert set(lines) == set(places(value))
    written = text.split("\n")
    for place, line in lines.items():
        if place and isinstance(place[-1], str):
            assert any(part in written[line - 1] for part in (place[-1], '= \\" #')), (place, line)
