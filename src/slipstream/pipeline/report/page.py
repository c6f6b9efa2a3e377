"""The report as one page that needs nothing else: no script, no address of anybody."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

from slipstream import __version__
from slipstream.pipeline.looking import NoSuchTable, QueryRefused, Tables
from slipstream.pipeline.report.dead_letters import dead_letters
from slipstream.pipeline.report.freshness import head
from slipstream.pipeline.report.html import Html, join, tag
from slipstream.pipeline.report.jobs import jobs
from slipstream.pipeline.report.latency import latency
from slipstream.pipeline.report.lineage import lineage
from slipstream.pipeline.report.seen import Section, Seen
from slipstream.pipeline.report.stuck import stuck
from slipstream.pipeline.report.style import STYLE
from slipstream.pipeline.report.throughput import throughput
from slipstream.pipeline.report.usage import usage
from slipstream.pipeline.report.words import time_text

DAY = dt.timedelta(days=1)

_SECTIONS: dict[str, Callable[[Seen], Section]] = {
    "Throughput": throughput,
    "How long steps take": latency,
    "Why tasks were given up": dead_letters,
    "Jobs": jobs,
    "What tenants use": usage,
    "Slips that do not move": stuck,
}


def render(tables: Tables, *, run: str | None = None, span: dt.timedelta = DAY, now: dt.datetime | None = None) -> str:
    """The page. `run` is the correlation id or run id of what is shown step by step. Raises NoSuchTable where there are
    no tables at all, NoSuchRun.

    Example:
        Path("report.html").write_text(render(Tables(root)))
    """
    now = dt.datetime.now(dt.UTC) if now is None else now
    if not tables.names:
        raise NoSuchTable(tables.missing(""))
    seen = Seen(tables, span, now)
    sections = [*_sections(seen), lineage(seen, run)]
    return "<!doctype html>\n" + _page(seen, sections)


def _sections(seen: Seen) -> Iterator[Section]:
    for title, section in _SECTIONS.items():
        try:
            yield section(seen)
        except QueryRefused as refused:
            # Tables of another release: what can be shown is shown.
            name = title.lower().replace(" ", "-")
            yield Section(name, title, tag("p", f"This cannot be shown of these tables: {refused}"))


def _page(seen: Seen, sections: list[Section]) -> Html:
    title = "What went through Slipstream"
    span = f"{time_text(seen.since)} to {time_text(seen.until)} (UTC)"
    links = [tag("a", section.title, href=f"#{section.name}") for section in sections]
    meta = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content="default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
        ),
        tag("meta", name="referrer", content="no-referrer"),
    ]
    return tag(
        "html",
        tag("head", meta, tag("title", title), tag("style", Html(STYLE))),
        tag(
            "body",
            tag(
                "main",
                tag(
                    "header",
                    tag("h1", title),
                    tag("p", f"{span}. Written at {time_text(seen.now)} by slipstream {__version__}.", class_="soft"),
                    tag("nav", links, aria_label="Sections"),
                ),
                head(seen),
                [_section(section) for section in sections],
            ),
        ),
        lang="en",
    )


def _section(section: Section) -> Html:
    heading = tag("h2", section.title, id=section.name)
    return tag("section", join(heading, section.body), aria_labelledby=section.name)
