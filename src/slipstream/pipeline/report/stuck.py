"""Slips that do not move."""

from __future__ import annotations

from slipstream.pipeline.report.html import Html, join, table, tag
from slipstream.pipeline.report.seen import Section, Seen
from slipstream.pipeline.report.words import ago_text, some

SHOWN_MAX = 50


def stuck(seen: Seen) -> Section:
    return Section("stuck", "Slips that do not move", _body(seen))


def _body(seen: Seen) -> Html:
    rows = seen.rows("SELECT * FROM stuck_slips ORDER BY since")
    if not rows:
        return tag("p", "None: everything that is under way has moved lately, or waits for a person or a signal.")
    more = f" The {SHOWN_MAX} that have waited longest." if len(rows) > SHOWN_MAX else ""
    told = f"{some(len(rows), 'slip')} under way, of which nothing was told for long.{more} "
    return join(
        tag("p", told, tag("code", "slipstream slip show ID"), " says what each waits for.", class_="soft"),
        table(
            ["slip", ">since", "step", "last told", "type"],
            [
                (
                    tag("code", row["correlation_id"] + (f"#{row['run']}" if row["run"] else "")),
                    ago_text(row["since"], seen.now),
                    tag("code", row["step"] or ""),
                    row["kind"] or "",
                    row["type"],
                )
                for row in rows[:SHOWN_MAX]
            ],
        ),
    )
