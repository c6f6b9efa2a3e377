"""Why tasks were given up."""

from __future__ import annotations

from typing import Any

from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.plot import share_bar
from slipstream.pipeline.report.seen import Section, Seen
from slipstream.pipeline.report.words import ago_text, some, time_text

CAUSES_MAX = 12


def dead_letters(seen: Seen) -> Section:
    return Section("dead-letters", "Why tasks were given up", _body(seen))


def _body(seen: Seen) -> Html:
    rows = seen.rows("SELECT * FROM dead_letter_causes ORDER BY count DESC, last_at DESC")
    if not rows:
        return tag("p", "No task was given up: the table dead_letter_causes is empty.")
    whole = sum(row["count"] for row in rows)
    most = rows[0]["count"]
    since = min(row["first_at"] for row in rows)
    shown = rows[:CAUSES_MAX]
    rest = f" The {CAUSES_MAX} most frequent." if len(rows) > CAUSES_MAX else ""
    return join(
        tag(
            "p",
            f"{some(whole, 'dead letter')} of {some(len(rows), 'cause')} since {time_text(since)}, by code, host and "
            f"tenant; each with the latest as an example.{rest}",
            class_="soft",
        ),
        tag("ul", [_cause(seen, row, most) for row in shown], class_="bars"),
        behind(
            "All causes",
            table(
                ["code", "host", "tenant", ">count", "first (UTC)", "last (UTC)"],
                [
                    (
                        row["failure_code"],
                        row["host"],
                        row["tenant"],
                        f"{row['count']:,}",
                        time_text(row["first_at"]),
                        time_text(row["last_at"]),
                    )
                    for row in rows[:200]
                ],
            ),
        ),
    )


def _cause(seen: Seen, row: dict[str, Any], most: int) -> Html:
    where = [each for each in (row["host"], row["tenant"]) if each]
    name = row["failure_code"] or "(no code)"
    place = f"{row['example_topic'] or '-'}/{row['example_partition']}/{row['example_offset']}"
    parts = [(name, row["count"], "bad"), ("", most - row["count"], "track")]
    return tag(
        "li",
        tag(
            "div",
            tag("span", tag("b", name), " ", tag("span", " · ".join(where), class_="soft")),
            tag("span", f"{row['count']:,}", class_="number"),
            class_="head",
        ),
        share_bar(f"{name}: {row['count']:,}", parts),
        tag(
            "div",
            f"{ago_text(row['last_at'], seen.now)}: {row['example_message'] or '(nothing was said)'}",
            tag("br"),
            tag("code", row["example_url"] or ""),
            f" · job {row['example_job_id'] or '-'} · {place}",
            class_="example",
        ),
    )
