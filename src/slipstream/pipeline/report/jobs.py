"""How jobs end, how far the latest are, and how long they take."""

from __future__ import annotations

import datetime as dt
from typing import Any

from slipstream.pipeline.report.html import Html, behind, join, table, tag
from slipstream.pipeline.report.plot import Series, both, histogram, legend, share_bar
from slipstream.pipeline.report.seen import Section, Seen
from slipstream.pipeline.report.words import ago_text, ms_text, some, time_text

LATEST = 12

STATES = {
    "JOB_STATE_QUEUED": ("queued", "t6"),
    "JOB_STATE_IN_PROGRESS": ("in progress", "calm"),
    "JOB_STATE_COMPLETED": ("completed", "good"),
    "JOB_STATE_PARTIAL": ("partial", "warn"),
    "JOB_STATE_FAILED": ("failed", "bad"),
}

_BOUNDS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)


def jobs(seen: Seen) -> Section:
    return Section("jobs", "Jobs", _body(seen))


def _body(seen: Seen) -> Html:
    states = seen.rows("SELECT state, count(*) AS jobs FROM job_snapshots GROUP BY state ORDER BY jobs DESC")
    if not states:
        return tag("p", "There are no jobs yet: the table job_snapshots is empty.")
    known = [*STATES, *(row["state"] for row in states if row["state"] not in STATES)]
    count_of = {row["state"]: row["jobs"] for row in states}
    parts = [(*_state(state), count_of[state]) for state in known if state in count_of]
    whole = sum(count_of.values())
    return join(
        tag(
            "p",
            f"{some(whole, 'job')}: " + ", ".join(f"{count:,} {name}" for name, _, count in parts) + ".",
            class_="soft",
        ),
        share_bar("Jobs by state", [(name, count, tone) for name, tone, count in parts]),
        legend_of(parts),
        tag("h3", "The latest"),
        _latest(seen),
        tag("h3", "Time to completion"),
        _durations(seen),
    )


def legend_of(parts: list[tuple[str, str, int]]) -> Html:
    return legend([Series(f"{name} {count:,}", (), tone) for name, tone, count in parts])


def _state(state: str | None) -> tuple[str, str]:
    return STATES.get(state or "", ((state or "unknown").removeprefix("JOB_STATE_").lower(), "t6"))


def _latest(seen: Seen) -> Html:
    rows = seen.rows(
        f"""SELECT * FROM job_snapshots
            ORDER BY ended_at IS NOT NULL, updated_at DESC LIMIT {LATEST}"""
    )
    return join([_job(seen, row) for row in rows])


def _job(seen: Seen, row: dict[str, Any]) -> Html:
    total, stored, failed = (row[f"resources_{name}"] or 0 for name in ("total", "completed", "failed"))
    name, tone = _state(row["state"])
    parts = [("stored", stored, "good"), ("failed", failed, "bad"), ("left", max(0, total - stored - failed), "track")]
    took = (
        f"took {_took(row['first_at'], row['ended_at'])}"
        if row["ended_at"]
        else f"begun {ago_text(row['first_at'], seen.now)}"
    )
    return tag(
        "div",
        tag(
            "span",
            tag("code", row["job_id"]),
            " ",
            tag("span", f"{row['job_type'] or ''} · {row['tenant'] or ''}", class_="soft"),
        ),
        tag("span", name, class_=f"pill {tone}"),
        share_bar(f"{stored:,} of {total:,} resources stored, {failed:,} failed", parts),
        tag("span", f"{stored:,} of {total:,}", tag("span", took, class_="soft beneath")),
        class_="job",
    )


def _took(began: dt.datetime, ended: dt.datetime) -> str:
    return ms_text((ended - began) / dt.timedelta(milliseconds=1))


def _durations(seen: Seen) -> Html:
    rows = seen.rows(
        """SELECT job_type, state, epoch_us(ended_at) / 1e6 - epoch_us(first_at) / 1e6 AS took_s, ended_at
           FROM job_snapshots WHERE isfinite(ended_at) AND isfinite(first_at)"""
    )
    if not rows:
        return tag("p", "No job has ended yet.")
    took = [max(0.0, row["took_s"]) for row in rows]
    first = next((index for index, bound in enumerate(_BOUNDS_S) if min(took) < bound), len(_BOUNDS_S))
    last = next((index for index, bound in enumerate(_BOUNDS_S) if max(took) < bound), len(_BOUNDS_S))
    counts = [0] * (last - first + 1)
    for each in took:
        counts[next((index for index, bound in enumerate(_BOUNDS_S) if each < bound), len(_BOUNDS_S)) - first] += 1
    names = [
        f"< {ms_text(_BOUNDS_S[index] * 1000)}" if index < len(_BOUNDS_S) else "more"
        for index in range(first, last + 1)
    ]
    kinds = seen.rows(
        """SELECT job_type, count(*) AS jobs, count(*) FILTER (state = 'JOB_STATE_COMPLETED') AS completed,
                  quantile_cont(took, 0.5) AS p50, quantile_cont(took, 0.95) AS p95, max(took) AS longest,
                  max(ended_at) AS latest
           FROM (SELECT *, greatest(0, epoch_us(ended_at) - epoch_us(first_at)) / 1e3 AS took
                 FROM job_snapshots WHERE isfinite(ended_at) AND isfinite(first_at))
           GROUP BY job_type ORDER BY jobs DESC LIMIT 50"""
    )
    return join(
        both(lambda width: histogram("How many jobs took how long", names, counts, width=width)),
        behind(
            "By type of job",
            table(
                ["type", ">ended", ">completed", ">p50", ">p95", ">longest", "latest (UTC)"],
                [
                    (
                        row["job_type"],
                        f"{row['jobs']:,}",
                        f"{row['completed']:,}",
                        *(ms_text(row[name]) for name in ("p50", "p95", "longest")),
                        time_text(row["latest"]),
                    )
                    for row in kinds
                ],
            ),
        ),
    )
