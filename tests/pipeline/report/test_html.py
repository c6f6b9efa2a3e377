"""Whatever is not markup of ours is text."""

from __future__ import annotations

from slipstream.pipeline.report.html import Html, behind, join, table, tag


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b & ", tag("b", '"x"')) == "<p>a &lt; b &amp; <b>&quot;x&quot;</b></p>"
    assert join("<i>", Html("<i>"), None, ["a", 1, [2.5]]) == "&lt;i&gt;<i>a12.5"


def test_attributes_are_escaped_and_named_as_in_html() -> None:
    found = tag("rect", class_="fill t0", stroke_width=1.5, aria_label='"><script>', x=None)
    assert found == '<rect class="fill t0" stroke-width="1.5" aria-label="&quot;&gt;&lt;script&gt;"/>'


def test_a_tag_that_may_be_empty_can_have_something_inside() -> None:
    assert tag("rect", tag("title", "x")) == "<rect><title>x</title></rect>"
    assert tag("br") == "<br>"
    assert tag("div") == "<div></div>"


def test_what_has_no_place_in_a_page_is_replaced() -> None:
    assert tag("p", "a\x00b\x1b[2J\ud800") == "<p>a\ufffdb\ufffd[2J\ufffd</p>"


def test_a_table_says_which_of_its_columns_are_numbers() -> None:
    found = table(["name", ">count"], [("<a>", 3)], caption="c")
    assert '<th class="number" scope="col">count</th>' in found
    assert '<td>&lt;a&gt;</td><td class="number">3</td>' in found
    assert "<caption>c</caption>" in found
    assert behind("more", found).startswith("<details><summary>more</summary><div")
