"""Topics as a person uses them: created, changed, produced into and deleted, with the mouse and with the keyboard."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.console.browser.conftest import PHONE, OpenPage, is_wider_than_its_window
from tests.server_process import ServerProcess


def test_a_topic_is_created_with_what_was_typed(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base, "#/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name", exact=True).last.fill("page-made")
    page.get_by_label("Partitions").fill("3")
    page.get_by_label("Keep messages for").fill("2d")
    page.get_by_label("Attempts before").fill("5")
    page.get_by_role("button", name="Create", exact=True).click()

    expect(page.get_by_role("heading", level=1, name="page-made")).to_be_visible()
    expect(page.get_by_text("Messages are kept for 2 days.")).to_be_visible()
    made = shared.get("/v2/topics/page-made").json()
    assert len(made["partitions"]) == 3
    assert made["overrides"] == {"retention_ms": 2 * 86_400_000, "retry": made["config"]["retry"]}
    assert made["config"]["retry"]["max_attempts"] == 5


def test_what_makes_no_sense_is_said_where_it_was_typed(open_page: OpenPage, shared: ServerProcess) -> None:
    page = open_page(shared.base, "#/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name", exact=True).last.fill("page-refused")
    page.get_by_label("Keep messages for").fill("two days")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("is no duration: type 500ms, 10s, 5m, 2h or 7d")
    assert shared.get("/v2/topics/page-refused").status_code == 404


def test_what_the_server_refuses_is_said_with_the_request(
    open_page: OpenPage, shared: ServerProcess, tolerate: list[str]
) -> None:
    tolerate.append("400")
    page = open_page(shared.base, "#/topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name", exact=True).last.fill("page-many")
    page.get_by_label("Partitions").evaluate("input => input.removeAttribute('max')")
    page.get_by_label("Partitions").fill("5000")
    page.get_by_role("button", name="Create", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("1024")
    expect(page.get_by_role("alert")).to_contain_text("INVALID_ARGUMENT · request c-")


def test_its_settings_are_changed_and_given_back_to_the_server(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    page = open_page(shared.base, f"#/topics/{topic}")
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Keep messages for").fill("36h")
    page.get_by_label("Keep what a group has not finished").select_option("yes")
    page.get_by_role("button", name="Change", exact=True).click()
    expect(page.get_by_text("Messages are kept for 36 h.")).to_be_visible()
    overrides = shared.get(f"/v2/topics/{topic}").json()["overrides"]
    assert overrides == {"retention_ms": 36 * 3_600_000, "hold_unfinished": True}

    page.get_by_role("button", name="Follow the server in everything").click()
    page.get_by_role("dialog").get_by_role("button", name="Follow the server").click()
    expect(page.get_by_text("set for this topic")).to_have_count(0)
    assert shared.get(f"/v2/topics/{topic}").json()["overrides"] == {}


def test_it_is_deleted_only_by_its_name(
    open_page: OpenPage, shared: ServerProcess, topic: str, tolerate: list[str]
) -> None:
    tolerate.append("404")  # the page may ask for it once more before it is left
    shared.produce(topic, "a message")
    page = open_page(shared.base, f"#/topics/{topic}")
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog")).to_contain_text("1 message will be gone for good")
    delete = page.get_by_role("button", name="Delete the topic")
    expect(delete).to_be_disabled()
    page.get_by_label(f"Type {topic} to go on").fill(topic[:-1])
    expect(delete).to_be_disabled()
    page.get_by_label(f"Type {topic} to go on").fill(topic)
    delete.click()
    expect(page.get_by_role("heading", level=1, name="Topics")).to_be_visible()
    assert shared.get(f"/v2/topics/{topic}").status_code == 404


def test_a_message_is_produced_with_the_keyboard_alone(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    page = open_page(shared.base, f"#/topics?search={topic}")
    page.get_by_role("link", name=topic, exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    expect(page.get_by_role("button", name="Produce a message")).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Produce a message")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Key")).to_be_focused()
    page.keyboard.type("user:1")
    page.keyboard.press("Tab")
    page.keyboard.type('{"books": 2}')
    page.keyboard.press("Tab")
    page.keyboard.type("10m")
    page.keyboard.press("Enter")
    expect(page.get_by_role("cell", name='{"books": 2}')).to_be_visible()
    # On to the message, and back to where one was.
    page.get_by_role("link", name="0", exact=True).focus()
    page.keyboard.press("Enter")
    opened = page.get_by_role("complementary", name=f"{topic}/0/0")
    expect(opened).to_contain_text("Due")
    page.keyboard.press("Escape")
    expect(opened).to_have_count(0)
    expect(page.get_by_role("link", name="0", exact=True)).to_be_focused()
    (stored,) = shared.get(f"/v2/topics/{topic}/messages").json()["messages"]
    assert (stored["key"], stored["value"]) == ("user:1", '{"books": 2}')
    # It counts from when it was asked for, which may be a moment before it was written.
    assert 595_000 < stored["deliver_at_ms"] - stored["timestamp_ms"] <= 600_000


def test_the_list_is_filtered_and_remembers_it_in_its_address(
    open_page: OpenPage, shared: ServerProcess, topic: str
) -> None:
    shared.create(f"{topic}-other")
    page = open_page(shared.base, "#/topics")
    page.get_by_role("searchbox", name="Name").fill(topic)
    expect(page.get_by_role("link", name=topic, exact=True)).to_be_visible()
    page.get_by_role("searchbox", name="Name").fill(f"{topic}-oth")
    expect(page.get_by_role("link", name=topic, exact=True)).to_have_count(0)
    page.reload()
    expect(page.get_by_role("link", name=f"{topic}-other")).to_be_visible()
    expect(page.get_by_role("link", name=topic, exact=True)).to_have_count(0)


def test_a_phone_shows_it_without_scrolling_sideways(open_page: OpenPage, shared: ServerProcess, topic: str) -> None:
    shared.produce(topic, "x" * 400, key="k" * 200)
    for place in (f"#/topics?search={topic}", f"#/topics/{topic}", f"#/topics/{topic}/0/0"):
        page = open_page(shared.base, place, size=PHONE)
        expect(page.get_by_role("link", name=topic).or_(page.get_by_role("heading", name=topic)).first).to_be_visible()
        expect(page.locator(".skeleton")).to_have_count(0)
        assert not is_wider_than_its_window(page), place


def test_a_server_that_is_gone_is_said_in_words(
    open_page: OpenPage, server: ServerProcess, tolerate: list[str]
) -> None:
    tolerate.extend(
        ["ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_EMPTY_RESPONSE"]
    )
    server.create("orders")
    page = open_page(server.base, "#/topics/orders")
    expect(page.get_by_role("heading", level=2, name="Groups")).to_be_visible()
    server.stop()
    alert = page.get_by_role("alert").first
    expect(alert).to_contain_text("the server does not answer: is it running")
    expect(alert).to_contain_text("request c-")
    expect(page.locator("#status")).to_contain_text("no connection")
    server.start()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(page.locator("#status")).to_contain_text("live")
