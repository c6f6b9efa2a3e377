"""Route tables in files: whatever is wrong with one is said with its line, and everything at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from slipstream.slip.event import Envelope, Event
from slipstream.slip.routes.file import FILE_BYTES_MAX, read_document
from slipstream.slip.routes.problems import RouteTableInvalid
from slipstream.slip.routes.table import RouteTable

TABLE = {
    "version": 1,
    "routes": {
        "chat.message.v1": {
            "timeout": "5m",
            "steps": [
                "intent",
                {
                    "id": "retrieval",
                    "when": {
                        "and": [{"var": "payload.memory.enabled"}, {"!=": [{"var": "payload.userId"}, "\U0001f600"]}]
                    },
                    "attributes": {"priority": "high"},
                    "max_attempts": 5,
                },
                {"id": "enrich", "parallel": {"geo": ["geo-lookup"], "no": ["score"]}, "join": 1, "deadline": 0.5},
            ],
        }
    },
}

YAML = """\
version: 1
routes:
  chat.message.v1:
    timeout: 5m
    steps:
      - intent
      - id: retrieval
        when: {and: [{var: payload.memory.enabled}, {"!=": [{var: payload.userId}, "\U0001f600"]}]}
        attributes: {priority: high}
        max_attempts: 5
      - id: enrich
        parallel: {geo: [geo-lookup], no: [score]}
        join: 1
        deadline: 0.5
"""

TOML = """\
version = 1
[routes."chat.message.v1"]
timeout = "5m"
steps = [
    "intent",
    { id = "retrieval", when = { and = [{ var = "payload.memory.enabled" }, { "!=" = [{ var = "payload.userId" }, "\\U0001F600"] }] }, attributes = { priority = "high" }, max_attempts = 5 },
    { id = "enrich", parallel = { geo = ["geo-lookup"], no = ["score"] }, join = 1, deadline = 0.5 },
]
"""  # noqa: E501, inline tables have no line breaks

TOML_BY_HEADINGS = """\
version = 1
[routes."chat.message.v1"]
timeout = "5m"
[[routes."chat.message.v1".steps]]
id = "intent"
[[routes."chat.message.v1".steps]]
id = "retrieval"
when.and = [{ var = "payload.memory.enabled" }, { "!=" = [{ var = "payload.userId" }, "\U0001f600"] }]
max_attempts = 5
[routes."chat.message.v1".steps.attributes]
priority = "high"
[[routes."chat.message.v1".steps]]
id = "enrich"
join = 1
deadline = "500ms"
[routes."chat.message.v1".steps.parallel]
geo = ["geo-lookup"]
no = ["score"]
"""


def written(directory: Path, ending: str, text: str) -> Path:
    path = directory / f"routes.{ending}"
    path.write_bytes(text.encode())
    return path


def problems(directory: Path, ending: str, text: str) -> list[str]:
    """Each without the directory."""
    with pytest.raises(RouteTableInvalid) as caught:
        RouteTable.load(written(directory, ending, text))
    assert str(caught.value) == "\n".join(map(str, caught.value.problems))
    return [line.removeprefix(f"{directory}/") for line in str(caught.value).split("\n")]


@pytest.mark.parametrize(
    ("ending", "text"),
    [
        ("yaml", YAML),
        ("yml", "\ufeff" + YAML.replace("\n", "\r\n")),
        ("json", json.dumps(TABLE, indent="\t")),
        ("json", json.dumps(TABLE, ensure_ascii=False, separators=(",", ":"))),
        ("toml", TOML),
        ("toml", TOML_BY_HEADINGS.replace("\n", "\r\n")),
    ],
)
def test_the_formats_say_the_same(tmp_path: Path, ending: str, text: str) -> None:
    event = Event(Envelope("1", "s", "c"), "chat.message.v1", {"memory": {"enabled": True}, "userId": "u"})
    loaded = RouteTable.load(written(tmp_path, ending, text))
    steps = loaded.plan(event)
    assert [step.id for step in steps] == ["intent", "retrieval", "enrich"]
    assert steps == RouteTable.of(TABLE).plan(event)
    assert loaded.timeout(event.type) == RouteTable.of(TABLE).timeout(event.type)


def test_all_problems_of_a_file_are_said_with_their_lines(tmp_path: Path) -> None:
    text = """\
routes:
  chat.message.v1:
    timeout: soon
    steps:
      - intent
      - id: retrieval
        when:
          and:
            - {var: payload.userId}
            - {fooo: [1]}
        tpoic: internal.retrieval.v1
        attributes:
          slip.wait: "yes"
          nested: {a: 1}
      - id: intent
        max_attempts: 0
      - undo:intent
  chat.command.v1:
    steps: []
"""
    route = "routes.chat.message.v1"
    duration = "a duration is wanted: 250ms, 10s, 5m, 2h, 3d, or a number of seconds, not 'soon'"
    assert problems(tmp_path, "yaml", text) == [
        f"routes.yaml:3: {route}.timeout: {duration}",
        f'routes.yaml:10: {route}.steps[1].when.and[1]: unknown operator "fooo" (did you mean floor?)',
        f'routes.yaml:11: {route}.steps[1].tpoic: unknown key "tpoic" (did you mean topic?)',
        f"routes.yaml:13: {route}.steps[1].attributes.slip.wait: names under slip. are the router's own",
        f"routes.yaml:14: {route}.steps[1].attributes.nested: an attribute is text, not a map",
        f'routes.yaml:15: {route}.steps[2].id: there is a step "intent" in this route already, in line 5',
        f"routes.yaml:16: {route}.steps[2].max_attempts: a whole number from 1 to 1000000 is wanted, not 0",
        f"routes.yaml:17: {route}.steps[3]: ids that start with undo: are those of steps that undo others",
        "routes.yaml:19: routes.chat.command.v1.steps: there are no steps",
    ]


def test_toml_has_its_lines_too(tmp_path: Path) -> None:
    text = """\
version = 2

[routes.a]
[[routes.a.steps]]
id = "one"
wehn = { var = "payload.x" }

[[routes.a.steps]]
id = "two"
unless = { "==" = [
    { vra = "payload.x" },
    1,
] }
"""
    assert problems(tmp_path, "toml", text) == [
        "routes.toml:1: version: this is version 1 of route tables, not 2",
        'routes.toml:6: routes.a.steps[0].wehn: unknown key "wehn" (did you mean when?)',
        'routes.toml:11: routes.a.steps[1].unless.==[0]: unknown operator "vra" (did you mean var or val?)',
    ]


def one_step(step: str) -> str:
    return f"routes: {{a: {{steps: [first, {step}]}}}}\n"


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("{id: p, parallel: {x: [x]}, wait: signal}", ".wait: a step is either parallel or waits: make it two"),
        ("{id: p, parallel: {}}", ".parallel: there are no branches: parallel is {name: [steps]}"),
        ("{id: p, parallel: {x: []}}", ".parallel.x: there are no steps"),
        ("{id: p, parallel: [x]}", ".parallel: a map is wanted, not a list"),
        ("{id: p, parallel: {x: y}}", ".parallel.x: a list is wanted, not 'y'"),
        ("{id: p, parallel: {x: [first]}}", '.parallel.x[0]: there is a step "first" in this route already, in line 1'),
        ("{id: p, parallel: {x: [p]}}", '.id: there is a step "p" in this route already, in line 1'),
        (
            "{id: p, parallel: {x: [router]}}",
            ".parallel.x[0]: the router is the first step of every slip, and no other",
        ),
        (
            "{id: p, parallel: {x: [{id: q, parallel: {y: [y]}}]}}",
            ".parallel.x[0].parallel: a branch has no parallel steps of its own",
        ),
        ("{id: p, parallel: {x: [x], y: [y]}, join: 3}", ".join: 3 of 2 branches cannot succeed"),
        ("{id: p, parallel: {x: [x], y: [y]}, join: 0}", ".join: 0 of 2 branches cannot succeed"),
        (
            "{id: p, parallel: {x: [x]}, join: al}",
            ".join: all, any, or how many branches must succeed, not 'al' (did you mean all?)",
        ),
        (
            "{id: p, parallel: {x: [x]}, join: true}",
            ".join: all, any, or how many branches must succeed, not true",
        ),
        ("{id: p, parallel: {x: [x]}, topic: t}", ".topic: no worker does a step that is parallel or waits"),
        ("{id: p, wait: approval, timeout: 1s}", ".timeout: no worker does a step that is parallel or waits"),
        ("{id: p, wait: aproval}", ".wait: approval or signal is wanted, not 'aproval' (did you mean approval?)"),
        ("{id: p, wait: signal, on_deadline: skip}", ".on_deadline: there is no deadline"),
        (
            "{id: p, wait: signal, deadline: 1s, on_deadline: explode}",
            ".on_deadline: fail or skip or go on is wanted, not 'explode'",
        ),
        ("{id: p, join: all}", ".join: only parallel steps are joined"),
        (
            "{id: p, deadline: 1s}",
            ".deadline: only a parallel or waiting step has a deadline; what one attempt has is timeout",
        ),
        ("{id: p, timeout: 0}", ".timeout: a duration is at least 1ms and at most 3650d, not 0"),
        ("{id: p, timeout: 99999d}", ".timeout: a duration is at least 1ms and at most 3650d, not '99999d'"),
        ("{id: p, optional: 1}", ".optional: true or false is wanted, not 1"),
        ("{id: p, version: 1.10}", """.version: a version is text such as "2", not 1.1"""),
        ("{id: p, attributes: {a: }}", ".attributes.a: an attribute is text, not nothing"),
        ("{id: p, max_attempts: true}", ".max_attempts: a whole number from 1 to 1000000 is wanted, not true"),
        (
            "{id: p, max_attempts: 99999999999}",
            ".max_attempts: a whole number from 1 to 1000000 is wanted, not 99999999999",
        ),
        ("{id: [p]}", ".id: text is wanted, not a list"),
        ("{topic: p}", ": a step needs an id"),
        ("[p]", ": a map is wanted, not a list"),
        ("router", ": the router is the first step of every slip, and no other"),
        ("{id: p, ? [a] : 1}", ": a key is text, not a list or a map"),
        ("{id: p, 1: 1}", ": the key 1 is not text: put it in quotes"),
        ("{id: p, id: q}", ".id: this key is there already, in line 1"),
        ("{id: p, topic: !!python/name:os.system x}", ".topic: 'x' cannot be read as python/name:os.system"),
        ("{id: p, attributes: !x {a: b}}", ".attributes: the tag !x is not known here"),
        (
            "{id: p, when: payload.x}",
            '.when: a rule is true, false or an operator such as {"var": "payload.userId"}, not "payload.x"',
        ),
        ("{id: p, unless: {==: [1]}}", '.unless: "==" takes at least 2 arguments, not 1'),
    ],
)
def test_a_step_that_makes_no_sense_is_refused(tmp_path: Path, step: str, said: str) -> None:
    found = problems(tmp_path, "yaml", one_step(step))
    assert found[0] == f"routes.yaml:1: routes.a.steps[1]{said}"


@pytest.mark.parametrize("name", ["a b", "a/b", "ä", "a..b", "x" * 201, ""])
@pytest.mark.parametrize("key", ["id", "topic"])
def test_ids_and_topics_are_names_of_the_bus(tmp_path: Path, key: str, name: str) -> None:
    step = json.dumps({"id": "p", key: name})
    (problem,) = problems(tmp_path, "yaml", one_step(step))
    assert problem.startswith(f"routes.yaml:1: routes.a.steps[1].{key}: {key} ")
    assert "cannot be used: 1 to 200 characters" in problem


def test_an_id_must_leave_room_for_its_topic(tmp_path: Path) -> None:
    long = "x" * 195
    (problem,) = problems(tmp_path, "yaml", one_step(long))
    assert problem.startswith("routes.yaml:1: routes.a.steps[1]: topic 'internal.xxx")
    RouteTable.load(written(tmp_path, "yaml", one_step(f"{{id: {long}, topic: short}}")))


@pytest.mark.parametrize(
    ("ending", "text", "said"),
    [
        ("yaml", "", ": a map is wanted, not nothing"),
        ("yaml", "a: 1", ':1: a: unknown key "a"; there is version, routes'),
        ("yaml", "routes: {}", ":1: routes: there are no routes"),
        ("yaml", "routes: {a*b: {steps: [x]}}", ":1: routes.a*b: a type is text that is not empty"),
        ("yaml", "routes: {a: {}}", ":1: routes.a: there are no steps"),
        ("yaml", "routes: {a: {steps: [router]}}", ":1: routes.a.steps: there are no steps"),
        ("yaml", "version: true\nroutes: {a: {steps: [x]}}", ":1: version: this is version 1"),
        ("yaml", "routes:\n  a: [\n", ":3: while parsing a flow node"),
        ("yaml", "a: 1\n---\nb: 2\n", ":2: expected a single document"),
        ("yaml", "a: \x00", ": unacceptable character #x0000"),
        ("yaml", "[" * 500_000, ":1: it is nested more than 100 deep"),
        ("yaml", "- " * 5_000, ": it is nested too deeply"),
        ("yaml", "[" * 150 + "]" * 150, ":1: it is nested more than 100 deep"),
        ("yaml", "a: *b\n", ":1: found undefined alias"),
        ("yaml", "&a [*a]\n", ":1: it is nested more than 100 deep, or in itself"),
        ("yaml", "routes: {a: {steps: [x]}, a: {steps: [y]}}", ":1: routes.a: this key is there already, in line 1"),
        ("json", '{\n"routes": }', ":2: Expecting value"),
        ("json", '{"version": NaN}', ": this is no JSON: NaN is no number there"),
        ("json", "routes: {}", ":1: Expecting value"),
        ("json", "[" * 100_000, ": this is no JSON"),
        ("toml", "a = 1\nb = \n", ":2: Invalid value"),
        ("toml", "a = 1\na = 2\n", ":2: Cannot overwrite a value"),
        ("toml", "a = " + "[" * 5_000, ": it is nested too deeply"),
        ("toml", "version = 1979-05-27\n", ":1: version: times are written as text here: '1979-05-27'"),
        ("toml", "version = " + "1" * 5_000, ": Exceeds the limit"),
        ("json", '{"version": ' + "1" * 5_000 + "}", ": this is no JSON: Exceeds the limit"),
        ("yaml", "version: " + "1" * 5_000, ":1: version: '1111"),
        ("toml", "version = inf\n", ":1: version: inf is no number in JSON"),
        ("ini", "", ": the name of a route table ends with .yaml, .yml, .json or .toml"),
        ("yaml", " " * (FILE_BYTES_MAX + 1), f": a route table has {FILE_BYTES_MAX} bytes at most"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, ending: str, text: str, said: str) -> None:
    assert problems(tmp_path, ending, text)[0].startswith(f"routes.{ending}{said}")


def test_a_file_that_is_not_there_or_not_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RouteTableInvalid, match="it cannot be read: No such file"):
        RouteTable.load(tmp_path / "routes.yaml")
    (tmp_path / "routes.yaml").write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(RouteTableInvalid, match=r"routes\.yaml:2: it is not UTF-8"):
        RouteTable.load(tmp_path / "routes.yaml")
    with pytest.raises(RouteTableInvalid, match="cannot be read: Is a directory"):
        RouteTable.load(tmp_path)


def test_a_billion_laughs_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    (problem,) = problems(tmp_path, "yaml", "\n".join(lines))
    assert "its aliases stand for more than" in problem


def test_aliases_that_stay_small_are_fine(tmp_path: Path) -> None:
    text = "routes:\n  a: &a {steps: [x]}\n  b: *a\n"
    assert RouteTable.load(written(tmp_path, "yaml", text)).types == ("a", "b")


def test_yaml_is_that_of_version_1_2(tmp_path: Path) -> None:
    text = "[no, on, ~, null, '', true, False, 0x1F, 12, -1.5, 1e3, 1:30, 2001-01-01, '1', .inf, !!str 2, !!int '3']"
    assert read_document(written(tmp_path, "yaml", text)).value == [
        *("no", "on", None, None, "", True, False, "0x1F", 12, -1.5, 1000.0),
        *("1:30", "2001-01-01", "1", ".inf", "2", 3),
    ]


def test_without_the_extra_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "slipstream.slip.routes.yaml_nodes", None)
    with pytest.raises(ImportError, match=r"pip install 'slipstream\[slip\]'"):
        RouteTable.load(written(tmp_path, "yaml", YAML))
    assert RouteTable.load(written(tmp_path, "toml", TOML)).types == ("chat.message.v1",)
