"""Writes what follows from the code: the pages of settings, `/v2`, the command line, the tables and the metrics,
the schemas of slips, and the dashboard.

`--check` only says whether they are up to date.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import click

from scripts import dashboard
from scripts.metric_docs import render_metrics
from scripts.settings_docs import render_settings
from scripts.table_docs import render_tables
from slipstream.api import JSON, MSGPACK
from slipstream.cli.main import main as main_command
from slipstream.cli.serve import show_value
from slipstream.server.v2.openapi import openapi
from slipstream.settings import PROFILES, SettingInfo, describe_settings
from slipstream.slip import schema

DOCS = Path(__file__).parent.parent / "docs"

_INTRODUCTION = """\
# Configuration

<!-- Written by scripts/generate_docs.py from slipstream/settings.py: change it there. -->

Every setting has one name in three places: an option of `slipstream serve`, a variable in the environment, and a key in
the TOML file given with `--config` (or `SLIPSTREAM_CONFIG`): `--max-in-flight 64`, `SLIPSTREAM_MAX_IN_FLIGHT=64`,
`max_in_flight = 64`. The command line wins over the environment, the environment over the file, the file over the
profile, the profile over the defaults. A value that makes no sense is named with its source, and nothing starts.

Times are in milliseconds, sizes in bytes. A switch is `--name` or `--no-name`; in the environment `true` or `false`.

They hold for all topics, old and new, except where a topic was given a value of its own.
"""

_DRIFTQ = """\
## Flags of DriftQ

So that scripts written for DriftQ start this server: `-addr HOST:PORT` or `:PORT`, `-wal` (the same as `--data`; a
directory), `-reset-wal` (forget everything stored, then start), `-log-level`, `-log-format`.
"""


def render_configuration() -> str:
    return "\n".join([_INTRODUCTION, *_sections(), *_profile(), _DRIFTQ])


def _sections() -> Iterator[str]:
    for section, settings in groupby(describe_settings(), lambda info: info.section):
        yield f"## {section}\n"
        yield "| option | environment | default | meaning |"
        yield "|---|---|---|---|"
        yield from map(_row, settings)
        yield ""


def _row(info: SettingInfo) -> str:
    meaning = info.text
    if info.choices:
        meaning += " One of " + ", ".join(f"`{choice}`" for choice in info.choices) + "."
    return f"| `{info.option}` | `{info.environment}` | {_default(info)} | {meaning} |"


def _default(info: SettingInfo) -> str:
    if info.kind is bool:
        return "on" if info.default else "off"
    return show_value(info.name, info.default) if info.default != "" else "none"


def _profile() -> Iterator[str]:
    yield "## The profile `driftq-v1`\n"
    yield "`--profile driftq-v1` changes these defaults to DriftQ's, which are sized for demonstrations:\n"
    yield "| setting | value |"
    yield "|---|---|"
    for name, value in PROFILES["driftq-v1"].items():
        yield f"| `{name}` | {str(value).lower() if isinstance(value, bool) else value} |"
    yield ""


# The reference of /v2

_REFERENCE = """\
# Reference of `/v2`

<!-- Written by scripts/generate_docs.py from slipstream/api: change it there. -->

Every call with what it takes and answers. The same as a document for machines: `GET /v2/openapi.json` (OpenAPI 3.1),
made from the types that decode the requests. How the calls are used is on the pages of this directory, from
[topics](topics.md) on.

- Bodies are JSON, or MessagePack with `Content-Type: application/msgpack`. The answer comes in the same form, or in
  the one that `Accept` names.
- In MessagePack keys and values are bytes. In JSON they are text; what is not UTF-8 is base64, and `encoding` (for keys
  `key_encoding`) says so.
- Unknown fields and parameters are refused. Times are RFC 3339 with a time zone; fields that end in `_ms` are
  milliseconds, those that say when since 1970.
- Errors are `{"error": code, "message": what to do}`.
"""


def render_reference() -> str:
    document = openapi()
    schemas = document["components"]["schemas"]
    lines = [_REFERENCE, "| call | for |", "|---|---|"]
    lines += [
        f"| [`{method} {path}`](#{_anchor(method, path)}) | {each['summary']} |"
        for method, path, each in _calls(document)
    ]
    shown: dict[str, None] = {}
    for method, path, operation in _calls(document):
        lines += ["", f"## {method} {path}", "", operation["summary"] + "."]
        lines += _parameters(operation)
        body = operation.get("requestBody")
        if body is not None:
            schema = body["content"][JSON]["schema"]
            name = _schema_name(schema.get("items", schema))
            listed = "an array of " if "items" in schema else ""
            lines += ["", f"Body: {listed}[`{_title(name)}`](#{_title(name).lower()})"]
            _collect(name, schemas, shown)
        lines += ["", _answer(operation, schemas, shown)]
    lines += ["", "## Types"]
    for name in shown:
        lines += _type(name, schemas[name])
    return "\n".join(lines) + "\n"


def _calls(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def _anchor(method: str, path: str) -> str:
    return re.sub(r"[^\w\- ]", "", f"{method} {path}".lower()).replace(" ", "-")


def _schema_name(schema: dict[str, Any]) -> str:
    return str(schema["$ref"]).rsplit("/", 1)[-1]


def _title(name: str) -> str:
    return name.removesuffix("_str_")


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    found = [each for each in operation.get("parameters", []) if each["in"] == "query"]
    if found:
        yield from ("", "| parameter | type | default | meaning |", "|---|---|---|---|")
        for each in found:
            yield _field(each["name"], each["schema"], each.get("required", False), each.get("description"))


def _answer(operation: dict[str, Any], schemas: dict[str, Any], shown: dict[str, None]) -> str:
    (status,) = (each for each in operation["responses"] if each != "default")
    content = operation["responses"][status].get("content")
    if content is None:
        return f"Answer: {status}, without a body."
    (name,) = {_schema_name(each["schema"]) for each in content.values() if "schema" in each}
    _collect(name, schemas, shown)
    also = [each for each in content if each not in {JSON, MSGPACK}]
    forms = f" Also as `{also[0]}`." if also and JSON in content else f" As `{also[0]}`." if also else ""
    return f"Answer: {status}, [`{_title(name)}`](#{_title(name).lower()}).{forms}"


def _collect(name: str, schemas: dict[str, Any], shown: dict[str, None]) -> None:
    """This type, and those it is made of."""
    if name not in shown:
        shown[name] = None
        for reference in re.findall(r"#/components/schemas/(\w+)", str(schemas[name])):
            _collect(reference, schemas, shown)


def _type(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"### {_title(name)}", "")
    if "description" in schema:
        yield from (inspect.cleandoc(schema["description"]), "")
    if "enum" in schema:
        yield "One of " + ", ".join(f"`{each}`" for each in schema["enum"]) + "."
        return
    yield from ("| field | type | default | meaning |", "|---|---|---|---|")
    required = schema.get("required", [])
    for field, each in schema.get("properties", {}).items():
        yield _field(field, each, field in required, each.get("description"))


def _field(name: str, schema: dict[str, Any], required: bool, text: str | None) -> str:
    default = "required" if required else _default_text(schema.get("default"))
    return f"| `{name}` | {_kind(schema)} | {default} | {' '.join((text or '').split())} |"


def _default_text(value: object) -> str:
    if value is None or value in ([], {}, ""):
        return ""
    return f"`{json.dumps(value)}`"


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        title = _title(_schema_name(schema))
        return f"[{title}](#{title.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"] if each.get("type") != "null")
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"] if each is not None)
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return "array"
        case "array":
            return f"array of {_kind(schema['items'])}" if "items" in schema else "array"
        case "object" if "additionalProperties" in schema:
            return "map of text"
        case "string" if schema.get("format") == "date-time":
            return "time"
        case "string":
            return "text"
        case kind:
            return str(kind)


# The command line

_COMMAND_LINE = """\
# The command line

<!-- Written by scripts/generate_docs.py from slipstream/cli: change it there. -->

`slipstream up` runs everything; `slipstream serve` a broker alone, whose options are the
[settings](configuration.md). The other commands talk to what runs: a broker, at `--server URL` or `SLIPSTREAM_URL`,
by default [the server that runs here](bus.md#which-engine); those of `bus` to a message bus, those of `slip` to the
store that routers and workers share, at `--store` or `SLIP_STORE`, those of `jobs` to the service of download jobs,
at `--service` or `JOBS_URL`, by default `http://127.0.0.1:8090`, with `--token` or `JOBS_TOKEN` where it asks for
one. Those of `table` look into the folder of the [tables](tables.md), at `--tables` or `PIPELINE_TABLES`, by default
`slipstream-data/tables`. If `SLIPSTREAM_DATA` is set, store and tables are by default in that directory.

- `--json` answers with JSON on stdout, one document or one line for each message, and says everything else on stderr.
- Exit codes: 0 done, 1 refused or not all done, 2 typed wrongly, 3 there is no such thing, 4 it does not fit the state
  of things, 5 no server there or it cannot answer now, 6 the server asks to wait, 130 interrupted. `up`, `serve` and
  `doctor` have their own, in `--help` and in [operations](operations.md).
- Durations are typed as `500ms`, `10s`, `5m`, `2h`, `7d`; sizes as `1000`, `64k`, `10m`, `2g`; times as
  `2030-01-31T12:00:00Z`, as a date, or as how long ago: `10m`.
- `slipstream completion bash` (or `zsh`, `fish`) prints what teaches a shell to complete commands, topics, groups,
  slips, jobs and tables.
"""


def render_command_line() -> str:
    lines = [_COMMAND_LINE]
    for path, command in _commands(main_command, []):
        usage = " ".join(["slipstream", *path, *_usage(command)])
        text = re.sub(r"\[/?\w*\]", "", inspect.cleandoc(command.help or ""))
        plain, _, examples = text.partition("\b\n")
        lines += [f"## {' '.join(path)}", "", f"`{usage}`", "", plain.strip(), ""]
        if examples:
            body = inspect.cleandoc(
                "\n".join(examples.splitlines()[1:] if "Examples" in examples else examples.splitlines())
            )
            lines += ["```sh", body.rstrip(), "```", ""]
        options = [each for each in command.params if isinstance(each, click.Option) and each.name not in _EVERYWHERE]
        if options and path != ["serve"]:
            lines += ["| option | meaning |", "|---|---|"]
            lines += [f"| `{', '.join([*each.opts, *each.secondary_opts])}` | {_meaning(each)} |" for each in options]
            lines.append("")
    return "\n".join(lines)


_EVERYWHERE = {"server", "store", "service", "token", "tables", "as_json"}


def _commands(group: click.Group, path: list[str]) -> Iterator[tuple[list[str], click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _commands(command, [*path, name])
        else:
            yield [*path, name], command


def _usage(command: click.Command) -> Iterator[str]:
    yield "[OPTIONS]"
    for each in command.params:
        if isinstance(each, click.Argument):
            yield each.make_metavar(click.Context(command))


def _meaning(option: click.Option) -> str:
    text = re.sub(r"\[/?\w*\]", "", option.help or "")
    shown = option.show_default and option.default is not None
    return f"{text} Default {option.default}." if shown else text


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": render_configuration,
    "v2/reference.md": render_reference,
    "command-line.md": render_command_line,
    "tables-reference.md": render_tables,
    "settings-reference.md": render_settings,
    "metrics.md": render_metrics,
}


def generated() -> dict[Path, str]:
    """Every file with what it should hold."""
    pages = {DOCS / name: render() for name, render in PAGES.items()}
    pages[dashboard.PATH] = dashboard.dashboard_text()
    return pages | {
        schema.DIRECTORY / f"{name}.json": schema.schema_text(each) for name, each in schema.schemas().items()
    }


def main(arguments: list[str]) -> int:
    late = {path: text for path, text in generated().items() if not path.exists() or path.read_text() != text}
    if arguments == ["--check"]:
        return 1 if late else 0
    for path, text in late.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
