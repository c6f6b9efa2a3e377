"""The head of the report: what happened in a few numbers, and how fresh each table is."""

from __future__ import annotations

from typing import Any

from slipstream.pipeline.looking import TableInfo
from slipstream.pipeline.report.html import Child, Html, behind, join, table, tag
from slipstream.pipeline.report.seen import AT_WORK, Seen
from slipstream.pipeline.report.words import ago_text, bytes_text, count_text, ms_text, some, time_text


def head(seen: Seen) -> Html:
    infos = [seen.tables.info(name) for name in seen.tables.names]
    return join(_tiles(seen), _fresh(seen, infos))


def _tiles(seen: Seen) -> Html:
    (work,) = seen.rows(
        f"""SELECT coalesce(sum(stored), 0) AS stored, coalesce(sum(failed), 0) AS failed,
                   coalesce(sum(dead_letters), 0) AS dead, coalesce(sum(bytes), 0) AS bytes
            FROM job_throughput WHERE {seen.within}"""
    )
    (jobs,) = seen.rows("SELECT count(*) AS going FROM job_snapshots WHERE ended_at IS NULL")
    (stuck,) = seen.rows("SELECT count(*) AS slips FROM stuck_slips")
    slow = seen.rows(
        f"""SELECT step, quantile_cont(p95_ms, 0.5) AS ms FROM step_metrics
            WHERE {seen.within} AND p95_ms IS NOT NULL AND {AT_WORK} GROUP BY step ORDER BY ms DESC LIMIT 1"""
    )
    tiles: list[tuple[str, Child]] = [
        (count_text(work["stored"]), f"downloads stored, {bytes_text(work['bytes'])}"),
        (count_text(work["failed"]), "failed for good"),
        (count_text(work["dead"]), "dead letters"),
        (count_text(jobs["going"]), "jobs under way now"),
        (count_text(stuck["slips"]), "slips stuck now"),
    ]
    if slow:
        tiles.append((ms_text(slow[0]["ms"]), ("p95 of the slowest step, ", tag("code", slow[0]["step"]))))
    return tag("div", [tag("div", tag("b", number), tag("span", what)) for number, what in tiles], class_="tiles")


def _fresh(seen: Seen, infos: list[TableInfo]) -> Html:
    def age(info: TableInfo) -> str:
        if info.newest is None:
            return "empty" if not info.rows else "-"
        return f"{info.newest:%Y-%m-%d}" if info.is_daily else ago_text(info.newest, seen.now)

    items = [tag("li", tag("code", info.name), tag("span", age(info))) for info in infos]
    rows: list[tuple[Any, ...]] = [
        (
            tag("code", info.name),
            info.layer,
            f"{info.rows:,}",
            bytes_text(info.bytes),
            time_text(info.newest) if info.newest is not None else "",
            info.version,
            ", ".join(f"{query} {batch}" for query, batch in info.batches.items()),
        )
        for info in infos
    ]
    columns = ["table", "layer", ">rows", ">size", "newest (UTC)", ">version", "last batch"]
    return tag(
        "section",
        tag("h2", "How fresh the tables are", id="freshness"),
        tag("p", f"How long ago the newest row of each is from; {some(len(infos), 'table')}.", class_="soft"),
        tag("ul", items, class_="fresh"),
        behind("Sizes, versions and batches", table(columns, rows)),
        aria_labelledby="freshness",
    )
