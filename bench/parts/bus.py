"""The bus: our drivers next to the bare client library of each engine, and the silence of a fail-over."""

from __future__ import annotations

import shutil
import statistics

from bench.bus import Plan, Rates
from bench.failover import Silences, measure_silences
from bench.parts.run import Row, Run, console
from bench.servers import bus_rates, find_pubsub, nats, nats_cluster, pubsub, slipstream

PUBSUB_MESSAGES, PUBSUB_ONE_BY_ONE = 2_000, 100


def measure_bus(run: Run) -> list[Row]:
    """Our drivers next to the bare client library of the same engine, on the same server in the same round."""
    scratch, rounds = run.scratch, run.rounds
    drivers: dict[str, list[Rates]] = {"nats": [], "http": [], "pubsub": [], "embedded": []}
    pubsub_server = find_pubsub()
    for number in range(rounds):
        console.print(f"[dim]bus, round {number + 1} of {rounds}[/]")
        with nats(scratch / f"nats-{number}") as address:
            drivers["nats"].append(bus_rates(Plan(driver="nats", address=address)))
        with slipstream(scratch / f"bus-{number}") as server:
            drivers["http"].append(bus_rates(Plan(driver="http", address=f"http://127.0.0.1:{server.port}")))
        if pubsub_server is not None:
            with pubsub(pubsub_server) as address:
                plan = Plan(driver="pubsub", address=address, messages=PUBSUB_MESSAGES, one_by_one=PUBSUB_ONE_BY_ONE)
                drivers["pubsub"].append(bus_rates(plan))
        plan = Plan(driver="embedded", address=str(scratch / f"embedded-{number}"))
        drivers["embedded"].append(bus_rates(plan))
        for name in ("nats", "bus", "embedded"):
            shutil.rmtree(scratch / f"{name}-{number}", ignore_errors=True)
    names = {
        "nats": ("NATS JetStream", "bare nats-py"),
        "http": ("http", "our bare client"),
        "pubsub": ("Pub/Sub (pstest)", "bare google-cloud-pubsub"),
        "embedded": ("embedded", ""),
    }
    usual = Plan(driver="", address="")
    rows = []
    for driver, rates in drivers.items():
        is_pubsub = driver == "pubsub"
        messages = PUBSUB_MESSAGES if is_pubsub else usual.messages
        one_by_one = PUBSUB_ONE_BY_ONE if is_pubsub else usual.one_by_one
        for what, count in (
            ("publish, one by one", one_by_one),
            ("publish", messages),
            ("consume", one_by_one + messages),
        ):
            if rates:
                row = _bus_row(f"bus on {names[driver][0]}: {what}", names[driver][1], what, rates, driver == "nats")
                row.load = f"burst, {count:,} messages"
                rows.append(row)
    return rows


def _bus_row(text: str, beside: str, what: str, rounds: list[Rates], has_target: bool) -> Row:
    rate = statistics.median(rates[f"ours {what}"] for rates in rounds)
    row = Row(what=text, rate=f"{rate:,.0f}/s")
    if beside:
        ratio = statistics.median(rates[f"ours {what}"] / rates[f"bare {what}"] for rates in rounds)
        row.what, row.ratio = f"{text} (÷ {beside})", f"{ratio:.2f}"
        if has_target:
            row.target, row.met = "≥ 0.80", ratio >= 0.8
    return row


def measure_failover(run: Run) -> list[Row]:
    """The silence after the leader is killed, next to bare nats-py in the same elections."""
    rounds: list[Silences] = []
    for number in range(run.rounds):
        console.print(f"[dim]fail-over, round {number + 1} of {run.rounds}[/]")
        folder = run.scratch / f"cluster-{number}"
        with nats_cluster(folder) as cluster:
            rounds.append(measure_silences(cluster))
        shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for what in ("publish", "consume"):
        silence = statistics.median(each[f"ours {what}"] for each in rounds)
        ratio = statistics.median(each[f"ours {what}"] / each[f"bare {what}"] for each in rounds)
        text = f"bus on NATS, 3 servers, the leader killed: longest silence, {what} (time ÷ bare nats-py)"
        shown = Row(what=text, p50=f"{silence:.1f} s", ratio=f"{ratio:.2f}", target="≤ 1.30", met=ratio <= 1.3)
        shown.load = "one election"
        rows.append(shown)
    return rows
