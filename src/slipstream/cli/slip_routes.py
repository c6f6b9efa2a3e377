"""`slipstream slip check`: what a route table plans, before a router does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import rich_click as click
from rich.markup import escape

from slipstream.cli.output import EXIT_CODES, Output, answering
from slipstream.cli.slip_store import exit_code
from slipstream.durations import duration_text

if TYPE_CHECKING:
    from slipstream.slip import RouteTable, RoutingStep
    from slipstream.slip.routes.route import PlannedStep


@click.command(epilog=EXIT_CODES)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--event", "event_file", metavar="FILE", help="Plan this event, as JSON; - is stdin.")
@click.option("--json", "as_json", is_flag=True, help="Answer with JSON, for machines.")
def check(file: Path, event_file: str | None, as_json: bool) -> None:
    """Check a route table: say all that is wrong with it, or what it plans.

    Exits with 2 if there is a problem; each is named with its line.

    \b
    [bold]Examples[/]
      slipstream slip check routes.yaml
      slipstream slip check routes.yaml --event order.json
    """
    with answering(as_json, exit_code) as output:
        from slipstream.slip import RouteTable  # noqa: PLC0415

        table = RouteTable.load(file)
        if event_file is not None:
            _show_plan(output, table, event_file)
        elif output.as_json:
            output.json({name: [_plain(step) for step in table.route(name).steps] for name in table.types})
        else:
            _show_table(output, table)


def _show_table(output: Output, table: RouteTable) -> None:
    for number, name in enumerate(table.types):
        route = table.route(name)
        limit = (
            "" if route.timeout is None else f"  [dim]within {duration_text(route.timeout.total_seconds() * 1000)}[/]"
        )
        output.say(("\n" if number else "") + f"[bold]{escape(name)}[/]{limit}")
        lines = list(_lines(route.steps, 1))
        width = max((len(step) for step, _ in lines), default=0)
        for step, said in lines:
            output.out.print(_line(step, width, said), soft_wrap=True)


def _line(step: str, width: int, said: str) -> str:
    return f"{escape(step.ljust(width))}  [dim]{escape(said)}[/]" if said else escape(step)


def _lines(steps: tuple[PlannedStep, ...], depth: int) -> Iterator[tuple[str, str]]:
    for planned in steps:
        when = "" if planned.when is None else f"when {planned.when.text}"
        yield "  " * depth + planned.step.id, ", ".join(part for part in (when, _said(planned.step)) if part)
        for name, branch in planned.branches.items():
            yield "  " * (depth + 1) + f"{name}:", ""
            yield from _lines(branch, depth + 2)


def _said(step: RoutingStep) -> str:
    """What the table says of a step, besides its id."""
    from slipstream.slip import hints  # noqa: PLC0415

    attributes = step.attributes
    parts: list[str] = []
    if hints.UNLESS in attributes:
        parts.append(f"unless {attributes[hints.UNLESS]}")
    if hints.JOIN in attributes:
        parts.append(f"parallel, {attributes[hints.JOIN]} wanted")
    if hints.WAIT in attributes:
        parts.append(f"waits for {'a signal' if attributes[hints.WAIT] == 'signal' else attributes[hints.WAIT]}")
    if hints.DEADLINE_MS in attributes:
        then = attributes.get(hints.ON_DEADLINE, "fail")
        parts.append(f"at most {duration_text(int(attributes[hints.DEADLINE_MS]))}, then {then}")
    if attributes.get(hints.OPTIONAL) == "true":
        parts.append("may fail")
    if step.max_attempts is not None:
        parts.append(f"{step.max_attempts} attempt{'s' if step.max_attempts > 1 else ''}")
    if hints.TIMEOUT_MS in attributes:
        parts.append(f"each within {duration_text(int(attributes[hints.TIMEOUT_MS]))}")
    if step.next_topic:
        parts.append(f"on {step.next_topic}")
    return ", ".join(parts)


def _plain(planned: PlannedStep) -> dict[str, Any]:
    fields: dict[str, Any] = {"step": msgspec.to_builtins(planned.step)}
    if planned.when is not None:
        fields["when"] = json.loads(planned.when.text)
    if planned.branches:
        fields["branches"] = {name: [_plain(each) for each in steps] for name, steps in planned.branches.items()}
    return fields


def _show_plan(output: Output, table: RouteTable, event_file: str) -> None:
    from slipstream.slip import decode, hints  # noqa: PLC0415

    with click.open_file(event_file, "rb") as file:
        event = decode(file.read())
    steps = table.plan(event)
    if output.as_json:
        output.json(steps)
        return
    if not steps:
        output.say(f"{escape(event.type)}: no step is taken, and the message is complete at once")
        return
    output.say(f"[bold]{escape(event.type)}[/]")
    width = max(len(step.id) for step in steps)
    for step in steps:
        output.out.print(_line(f"  {step.id}", width + 2, _said(step)), soft_wrap=True)
        for name, branch in json.loads(step.attributes.get(hints.BRANCHES, "{}")).items():
            ids = ", ".join(each["id"] for each in branch)
            output.out.print(f"    [cyan]{escape(name)}:[/] {escape(ids)}", soft_wrap=True)
