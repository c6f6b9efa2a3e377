"""Slips: routing next to the bus it stands on."""

from __future__ import annotations

import shutil
import statistics

from bench.parts.run import Row, Run, console
from bench.servers import nats, slip_seconds, slipstream
from bench.slip import TURNS, Plan, Seconds


def measure_slips(run: Run) -> list[Row]:
    """Routing next to the bus it stands on: the same messages, as many hops, the same engine, in the same round."""
    scratch, rounds = run.scratch, run.rounds
    drivers: dict[str, list[Seconds]] = {"embedded": [], "http": [], "nats": []}
    folder = str(scratch)
    for number in range(rounds):
        console.print(f"[dim]slips, round {number + 1} of {rounds}[/]")
        address = str(scratch / f"slips-{number}")
        drivers["embedded"].append(slip_seconds(Plan(driver="embedded", address=address, folder=folder)))
        with slipstream(scratch / f"slips-http-{number}") as server:
            plan = Plan(driver="http", address=f"http://127.0.0.1:{server.port}", folder=folder)
            drivers["http"].append(slip_seconds(plan))
        with nats(scratch / f"slips-nats-{number}") as address:
            drivers["nats"].append(slip_seconds(Plan(driver="nats", address=address, folder=folder)))
        for left in scratch.glob("slips-*"):
            shutil.rmtree(left, ignore_errors=True)
    names = {"embedded": "embedded", "http": "http", "nats": "NATS JetStream"}
    return [_slip_row(names[driver], seconds) for driver, seconds in drivers.items()]


def _slip_row(name: str, rounds: list[Seconds]) -> Row:
    messages = TURNS * Plan(driver="", address="", folder="").messages
    rate = statistics.median(messages / seconds["slips"] for seconds in rounds)
    cost = statistics.median(seconds["slips"] / seconds["bus"] for seconds in rounds)
    what = f"routing on {name}: three steps, whole messages (time ÷ that of the bus alone, the same messages)"
    return Row(
        what=what,
        rate=f"{rate:,.0f}/s",
        load=f"burst, {messages:,} messages",
        ratio=f"{cost:.2f}",
        target="≤ 2.00",
        met=cost <= 2,
    )
