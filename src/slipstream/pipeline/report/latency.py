"""How long the steps of slips take, over time and in all."""

from __future__ import annotations

from typing import Any

from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.plot import Series, legend, lines
from slipstream.pipeline.report.seen import AT_WORK, Section, Seen, moment
from slipstream.pipeline.report.words import ms_text

STEPS_MAX = 8
"""That have a plot; those with the most time in them."""

_NAMES = {"p50_ms": ("p50", "t2"), "p95_ms": ("p95", "t0"), "p99_ms": ("p99", "t1")}


def latency(seen: Seen) -> Section:
    return Section("latency", "How long steps take", _body(seen))


def _body(seen: Seen) -> Html:
    steps = seen.rows(
        f"""SELECT step, sum(attempts) AS attempts, sum(errors) AS errors, sum(attempts * p50_ms) AS weight
            FROM step_metrics WHERE {seen.within} AND {AT_WORK}
            GROUP BY step ORDER BY weight DESC, step"""
    )
    if not steps:
        return tag("p", "No step of a slip has ended in this time: the table step_metrics has no row of it.")
    shown = [row["step"] for row in steps[:STEPS_MAX]]
    rows = seen.rows(
        f"""SELECT step, {seen.index} AS index, {", ".join(f"max({name}) AS {name}" for name in _NAMES)}
            FROM step_metrics WHERE {seen.within} AND {AT_WORK} GROUP BY ALL"""
    )
    worst = f", the worst of {seen.bucket_minutes} minutes" if seen.bucket_minutes > 1 else ""
    more = f" The {len(shown)} with the most time in them, of {len(steps)}." if len(steps) > len(shown) else ""
    plots = [_plot(seen, step, [row for row in rows if row["step"] == step]) for step in shown]
    return join(
        tag(
            "p",
            f"Attempts that have ended, by minute{worst}: half (p50), 95 and 99 of 100 took no longer.{more} "
            "Steps at which slips wait for a person, a signal or branches are left out.",
            class_="soft",
        ),
        legend([Series(name, (), tone) for name, tone in _NAMES.values()]),
        tag("div", plots, class_="grid2"),
        tag("h3", "Each step, over the whole time"),
        _whole(seen, steps),
        behind("Numbers by hour", _hours(seen)),
    )


def _plot(seen: Seen, step: str, rows: list[dict[str, Any]]) -> Html:
    series = []
    for column, (name, tone) in _NAMES.items():
        values: list[float | None] = [None] * len(seen.times)
        for row in rows:
            values[row["index"]] = row[column]
        series.append(Series(name, values, tone))
    return tag(
        "div",
        tag("h3", tag("code", step)),
        # Two fit beside each other on a screen: each is as wide as one on a phone.
        lines(f"p50, p95 and p99 of {step} over time", seen.times, series, ms_text, width=420, height=170),
    )


def _whole(seen: Seen, steps: list[dict[str, Any]]) -> Html:
    """Percentiles of minutes cannot be put together: these are of the attempts themselves."""
    exact = {
        row["step"]: row
        for row in seen.rows(
            f"""SELECT step, quantile_cont(duration_ms, 0.5) AS p50_ms, quantile_cont(duration_ms, 0.95) AS p95_ms,
                       quantile_cont(duration_ms, 0.99) AS p99_ms, max(duration_ms) AS longest_ms
                FROM slip_steps
                WHERE state IN ('done', 'retried', 'failed') AND duration_ms IS NOT NULL
                  AND ended_at >= {moment(seen.since)} AND ended_at < {moment(seen.until)}
                GROUP BY step"""
        )
    }

    def took(step: str, name: str) -> str:
        return ms_text(exact[step][name]) if step in exact else ""

    return table(
        ["step", ">attempts", ">errors", ">of 100", ">p50", ">p95", ">p99", ">longest"],
        [
            (
                tag("code", row["step"]),
                f"{row['attempts']:,}",
                f"{row['errors']:,}",
                f"{100 * row['errors'] / row['attempts']:.1f}" if row["attempts"] else "",
                *(took(row["step"], name) for name in ("p50_ms", "p95_ms", "p99_ms", "longest_ms")),
            )
            for row in steps
        ],
    )


def _hours(seen: Seen) -> Html:
    rows = seen.rows(
        f"""SELECT date_trunc('hour', minute) AS hour, step, sum(attempts) AS attempts, sum(errors) AS errors,
                   {", ".join(f"max({name}) AS {name}" for name in _NAMES)}
            FROM step_metrics WHERE {seen.within} AND {AT_WORK} GROUP BY ALL ORDER BY hour DESC, step LIMIT 200"""
    )
    return table(
        ["hour (UTC)", "step", ">attempts", ">errors", ">p50", ">p95", ">p99"],
        [
            (
                f"{row['hour']:%m-%d %H:%M}",
                tag("code", row["step"]),
                f"{row['attempts']:,}",
                f"{row['errors']:,}",
                *(ms_text(row[name]) if row[name] is not None else "" for name in _NAMES),
            )
            for row in rows
        ],
        caption="Of the minutes of the hour, the worst.",
    )
