"""What tenants have used."""

from __future__ import annotations

import datetime as dt

from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.plot import share_bar
from slipstream.pipeline.report.seen import EPOCH, Section, Seen
from slipstream.pipeline.report.words import bytes_text, some

DAYS = 7
TENANTS_MAX = 20
_COUNTS = ("jobs", "jobs_completed", "jobs_partial", "jobs_failed", "tasks", "stored", "failed", "dead_letters")


def usage(seen: Seen) -> Section:
    return Section("tenants", "What tenants use", _body(seen))


def _body(seen: Seen) -> Html:
    ((last,),) = seen.tables.query(
        f"""SELECT max(day) FROM tenant_usage
            WHERE day BETWEEN '{EPOCH.date()}' AND '{(seen.now + dt.timedelta(days=1)).date()}'"""
    )
    if last is None:
        return tag("p", "No tenant has used anything yet: the table tenant_usage is empty.")
    first = last - dt.timedelta(days=DAYS - 1)
    within = f"day BETWEEN '{first}' AND '{last}'"
    sums = ", ".join(f"sum({name}) AS {name}" for name in (*_COUNTS, "bytes"))
    rows = seen.rows(
        f"SELECT tenant, {sums} FROM tenant_usage WHERE {within} GROUP BY tenant ORDER BY bytes DESC, tenant"
    )
    days = seen.rows(f"SELECT * FROM tenant_usage WHERE {within} ORDER BY day DESC, bytes DESC LIMIT 200")
    most = max(row["bytes"] for row in rows) or 1
    more = f" The {TENANTS_MAX} largest." if len(rows) > TENANTS_MAX else ""
    return join(
        tag("p", f"{some(len(rows), 'tenant')} from {first} to {last}, by bytes stored.{more}", class_="soft"),
        tag(
            "ul",
            [
                tag(
                    "li",
                    tag(
                        "div",
                        tag("b", row["tenant"] or "(no tenant)"),
                        tag(
                            "span",
                            f"{bytes_text(row['bytes'])} · {some(row['stored'], 'file')} · {some(row['jobs'], 'job')}",
                        ),
                        class_="head",
                    ),
                    share_bar(
                        f"{bytes_text(row['bytes'])} stored",
                        [("bytes", row["bytes"], "t0"), ("", most - row["bytes"], "track")],
                    ),
                )
                for row in rows[:TENANTS_MAX]
            ],
            class_="bars",
        ),
        behind(
            "Numbers by day",
            table(
                [
                    *("day (UTC)", "tenant", ">jobs", ">completed", ">partial", ">failed", ">tasks"),
                    *(">stored", ">failed", ">dead letters", ">bytes"),
                ],
                [
                    (
                        row["day"].isoformat(),
                        row["tenant"],
                        *(f"{row[name]:,}" for name in _COUNTS),
                        bytes_text(row["bytes"]),
                    )
                    for row in days
                ],
            ),
        ),
    )
