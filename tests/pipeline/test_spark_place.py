"""Where Spark is, and what is said where it is not."""

from __future__ import annotations

import socket

import pytest

from slipstream.pipeline.errors import InvalidPipeline, SparkUnreachable
from slipstream.pipeline.spark_place import check_place, is_local, options_of, shown
from tests.bus.sites.site import free_port


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("local[2]", True), ("local-cluster[2,1,1024]", False), ("yarn", False)],
)
def test_only_what_is_in_this_process_is_local(master: str, local: bool) -> None:
    assert is_local(master) is local


@pytest.mark.parametrize("master", ["local[*]", "yarn", "k8s://https://192.0.2.1:6443"])
def test_what_nobody_can_ask_from_here_is_taken_as_it_is(master: str) -> None:
    check_place(master, "")


@pytest.mark.parametrize(("master", "remote"), [("mesos://a:1", ""), ("locally", ""), ("", "http://a"), ("", "sc:/a")])
def test_what_is_no_address_is_refused_with_what_would_be_one(master: str, remote: str) -> None:
    with pytest.raises(InvalidPipeline, match=r"sc://HOST|spark://HOST"):
        check_place(master, remote)


def test_a_master_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(SparkUnreachable, match=r"there is no master of Spark at spark://127\.0\.0\.1"):
        check_place(f"spark://127.0.0.1:{free_port()}", "")


def test_a_server_of_connect_that_is_not_there_is_said_without_its_token() -> None:
    with pytest.raises(SparkUnreachable) as raised:
        check_place("local", f"sc://127.0.0.1:{free_port()}/;token=s3cret")
    assert "s3cret" not in str(raised.value)


def test_one_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        check_place(f"spark://127.0.0.1:{free_port()},127.0.0.1:{port}", "")


def test_a_port_that_is_none_is_said() -> None:
    with pytest.raises(InvalidPipeline, match="HOST:PORT"):
        check_place("spark://127.0.0.1:many", "")


def test_options_of_spark_are_taken_apart_as_a_shell_would() -> None:
    said = "spark.executor.memory=4g spark.x='a b' spark.y=a=b"
    assert options_of(said) == {"spark.executor.memory": "4g", "spark.x": "a b", "spark.y": "a=b"}


@pytest.mark.parametrize("conf", ["spark.x", "executor.memory=1g", "'spark.x=1"])
def test_an_option_that_is_none_is_refused(conf: str) -> None:
    with pytest.raises(InvalidPipeline):
        options_of(conf)


def test_an_address_is_shown_without_its_parameters() -> None:
    assert shown("sc://host:15002/;token=s3cret;use_ssl=true") == "sc://host:15002/"
    assert shown("sc://host:15002;token=s3cret") == "sc://host:15002"
    assert shown("sc://user:s3cret@host/") == "sc://host/"


def test_a_token_behind_a_forgotten_slash_is_not_said_either() -> None:
    with pytest.raises(SparkUnreachable) as raised:
        check_place("local", f"sc://127.0.0.1:{free_port()};token=s3cret")
    assert "s3cret" not in str(raised.value)
