"""HTML and SVG from Python: whatever is not made here is text, and escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TypeAlias


class Html(str):
    """Markup that was made here."""

    __slots__ = ()


Child: TypeAlias = "Html | str | float | Iterable[Child] | None"

_VOID = {"br", "meta", "line", "rect", "circle", "path"}


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Html:
    """`class_`, `font_size` and so on are written as HTML has them; an attribute that is None is left out.

    Example:
        tag("p", "is it ", tag("b", "<bold>"), class_="note")
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = _join(children)
    if name in _VOID and not inner:
        return Html(f"<{name}{given}/>" if name != "br" else "<br>")
    return Html(f"<{name}{given}>{inner}</{name}>")


def join(*children: Child) -> Html:
    return Html(_join(children))


def text(value: object) -> str:
    """Escaped; characters that have no place in a page are shown as what they are."""
    shown = f"{value:.10g}" if isinstance(value, float) else str(value)
    plain = "".join(each if each.isprintable() or each in "\n\t" else "\ufffd" for each in shown)
    return html.escape(plain, quote=True)


def _join(children: Iterable[Child]) -> str:
    parts = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(str(child))
        elif isinstance(child, str | int | float):
            parts.append(text(child))
        else:
            parts.append(_join(child))
    return "".join(parts)


def table(columns: Sequence[str], rows: Iterable[Sequence[Child]], *, caption: str = "") -> Html:
    """Columns whose name starts with `>` hold numbers, and are aligned on the right."""
    kinds = ["number" if column.startswith(">") else None for column in columns]
    head = [
        tag("th", column.removeprefix(">"), class_=kind, scope="col")
        for column, kind in zip(columns, kinds, strict=True)
    ]
    body = [tag("tr", [tag("td", cell, class_=kind) for cell, kind in zip(row, kinds, strict=True)]) for row in rows]
    named = tag("caption", caption) if caption else None
    return tag(
        "div", tag("table", named, tag("thead", tag("tr", head)), tag("tbody", body)), class_="scroll", tabindex="0"
    )


def behind(summary: str, *children: Child) -> Html:
    """What is there for those who want to know more, or cannot see a plot."""
    return tag("details", tag("summary", summary), *children)
