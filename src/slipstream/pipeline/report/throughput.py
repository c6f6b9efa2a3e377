"""What was done in each minute, in all and for each tenant."""

from __future__ import annotations

from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.plot import Series, both, legend, lines
from slipstream.pipeline.report.seen import Section, Seen, literal
from slipstream.pipeline.report.words import bytes_text, count_text, some

TENANTS_MAX = 5
"""With a line of their own; the others share one."""


def throughput(seen: Seen) -> Section:
    return Section("throughput", "Throughput", _body(seen))


def _body(seen: Seen) -> Html:
    rows = seen.rows(
        f"""SELECT {seen.index} AS index, sum(tasks) AS tasks, sum(stored) AS stored, sum(failed) AS failed
            FROM job_throughput WHERE {seen.within} GROUP BY index"""
    )
    if not rows:
        return tag("p", "Nothing was downloaded in this time: the table job_throughput has no row of it.")
    all_of_it = [
        Series("tasks published", _per_minute(seen, rows, "tasks"), "t0"),
        Series("stored", _per_minute(seen, rows, "stored"), "good", is_filled=True),
        Series("failed", _per_minute(seen, rows, "failed"), "bad", is_dashed=True),
    ]
    tenants = _by_tenant(seen)
    each = f", mean of {seen.bucket_minutes} minutes" if seen.bucket_minutes > 1 else ""
    return join(
        tag("p", f"Downloads per minute{each}, by when the broker has stored what was told of them.", class_="soft"),
        both(lambda width: lines("Downloads per minute over time", seen.times, all_of_it, count_text, width=width)),
        legend(all_of_it),
        tag("h3", "Stored per minute, by tenant"),
        both(
            lambda width: lines("Downloads stored per minute, by tenant", seen.times, tenants, count_text, width=width)
        ),
        legend(tenants),
        behind("Numbers by hour", _hours(seen)),
    )


def _per_minute(seen: Seen, rows: list[dict[str, int]], name: str) -> list[float]:
    """A minute that nobody has counted anything in is 0."""
    values = [0.0] * len(seen.times)
    for row in rows:
        values[row["index"]] = row[name] / seen.bucket_minutes
    return values


def _by_tenant(seen: Seen) -> list[Series]:
    known = seen.rows(
        f"""SELECT tenant, sum(stored) AS stored FROM job_throughput WHERE {seen.within}
            GROUP BY tenant ORDER BY stored DESC, tenant"""
    )
    large = [row["tenant"] for row in known[:TENANTS_MAX]]
    chosen = ", ".join(map(literal, large))
    rows = seen.rows(
        f"""SELECT if(tenant IN ({chosen}), tenant, NULL) AS tenant, {seen.index} AS index, sum(stored) AS stored
            FROM job_throughput WHERE {seen.within} GROUP BY ALL"""
    )
    found = []
    for number, tenant in enumerate([*large, None] if len(known) > TENANTS_MAX else large):
        mine = [row for row in rows if row["tenant"] == tenant]
        rest = len(known) - TENANTS_MAX
        name = f"{some(rest, 'other')}" if tenant is None else tenant or "(no tenant)"
        found.append(Series(name, _per_minute(seen, mine, "stored"), "t6" if tenant is None else f"t{number}"))
    return found


def _hours(seen: Seen) -> Html:
    rows = seen.rows(
        f"""SELECT date_trunc('hour', minute) AS hour, tenant, sum(tasks) AS tasks, sum(stored) AS stored,
                   sum(failed) AS failed, sum(retried) AS retried, sum(dead_letters) AS dead, sum(bytes) AS bytes
            FROM job_throughput WHERE {seen.within} GROUP BY ALL ORDER BY hour DESC, stored DESC LIMIT 200"""
    )
    return table(
        ["hour (UTC)", "tenant", ">tasks", ">stored", ">failed", ">retried", ">dead letters", ">bytes"],
        [
            (
                f"{row['hour']:%m-%d %H:%M}",
                row["tenant"],
                *(f"{row[name]:,}" for name in ("tasks", "stored", "failed", "retried", "dead")),
                bytes_text(row["bytes"]),
            )
            for row in rows
        ],
    )
