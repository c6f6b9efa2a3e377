"""What a task may say in a request, and what not."""

from __future__ import annotations

import pytest
from yarl import URL

from slipstream.jobs.download.question import question_headers, without_credentials
from slipstream.jobs.failure import Code, TaskFailed

TARGET = URL("http://example.org/")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nHost: evil"),
        ("X", "a\nb"),
        ("X", "\0"),
        ("X\r\nY", "a"),
        ("X Y", "a"),
        ("", "a"),
        ("X:", "a"),
        ("ä", "a"),
    ],
)
def test_a_line_break_does_not_smuggle_in_a_field(name: str, value: str) -> None:
    with pytest.raises(TaskFailed) as caught:
        question_headers([(name, value)], TARGET)
    assert caught.value.code is Code.DOWNLOAD_INVALID_HEADER
    assert not caught.value.is_retryable


def test_what_is_about_the_connection_is_not_the_tasks_to_say() -> None:
    names = ["Host", "CONTENT-LENGTH", "Transfer-Encoding", "Range", "If-Range", "Proxy-Authorization", "Connection"]
    fields = question_headers([*((name, "x") for name in names), ("Accept", "a"), ("accept", "b")], TARGET)
    assert list(fields.items()) == [("Accept", "a"), ("accept", "b")]


def test_userinfo_becomes_authorization_unless_there_is_one() -> None:
    target = URL("http://us%40er:pass%3Aword@example.org/")
    assert question_headers([], target)["Authorization"] == "Basic dXNAZXI6cGFzczp3b3Jk"
    assert question_headers([("authorization", "Bearer x")], target).getall("Authorization") == ["Bearer x"]


def test_credentials_by_whatever_name_stay_with_their_origin() -> None:
    secret = ["Authorization", "cookie", "X-Api-Key", "X-Auth-Token", "X-Amz-Security-Token", "Private-Token"]
    fields = question_headers([*((name, "x") for name in secret), ("Accept", "a"), ("User-Agent", "b")], TARGET)
    assert list(without_credentials(fields)) == ["Accept", "User-Agent"]
