"""The page of the Python client does what it says: its fragments run in order, its programs as processes."""

from __future__ import annotations

import inspect
import json
import re
import time
from pathlib import Path

import pytest

from slipstream import client as package
from slipstream.client import AsyncClient, Client, SlipstreamError
from tests.docs.examples import examples, program, run_page
from tests.docs.pages import CLIENT, quoted, rows, section
from tests.server_process import ServerProcess


def test_the_fragments_print_what_they_are_said_to(server: ServerProcess) -> None:
    assert sum(bool(example.output) for example in examples(CLIENT)) > 5
    run_page(CLIENT, server)


def test_the_worker_enriches_what_it_can(server: ServerProcess, tmp_path: Path) -> None:
    with Client(server.base) as client:
        client.create_topic("tasks.enrich")
        client.create_topic("tasks.done")
        tasks = [{"customer": 1}, {"region": "moon", "customer": 2}, {"nobody": 0}]
        client.produce_batch("tasks.enrich", [json.dumps(task) for task in tasks])
        with program(CLIENT, "enrich.py", server, tmp_path):
            done = client.scan("tasks.done", follow=True)
            assert {next(done).value, next(done).value} == {json.dumps(task).encode() for task in tasks[:2]}
            while not any(topic.name == "dlq.tasks.enrich" for topic in client.topics()):
                time.sleep(0.01)
        (letter,) = client.dead_letters("tasks.enrich")
        assert letter.envelope.dlq is not None
        assert letter.envelope.dlq.last_error == "a task without a customer"


def test_the_worker_bills_once(server: ServerProcess, tmp_path: Path) -> None:
    with Client(server.base) as client:
        client.create_topic("invoices")
        for _ in range(2):  # the same order in two messages, as from a producer that was not sure
            client.produce("invoices", "order 17", idempotency_key="17", partition_override=0, tenant_id="acme")
        with program(CLIENT, "billing.py", server, tmp_path) as printed:
            finished(client)
            client.seek("invoices", "billing", to="earliest")  # everything again
            finished(client)
        assert printed == ["charged order 17"]


def finished(client: Client) -> None:
    while True:
        groups = client.groups("invoices")
        if groups and not groups[0].lag:
            return
        time.sleep(0.01)


def test_every_exception_is_in_the_table_and_no_other() -> None:
    kinds = {name: kind for name, kind in vars(package).items() if isinstance(kind, type)}
    there = {name for name, kind in kinds.items() if issubclass(kind, SlipstreamError)}
    shown = set().union(*(quoted(row[0]) | quoted(row[1]) for row in rows(section(CLIENT, "Errors"))))
    assert there - {"SlipstreamError"} == {name for name in shown if re.fullmatch("[A-Z][A-Za-z]+", name)}


def test_every_method_is_on_the_page() -> None:
    text = CLIENT.read_text()
    for name, _ in inspect.getmembers(AsyncClient, callable):
        if not name.startswith("_"):
            assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("number", range(2))
def test_the_page_says_nothing_of_a_method_that_is_not_there(number: int) -> None:
    kinds = (AsyncClient, Client)
    for name in re.findall(r"\bclient\.(\w+)\(", CLIENT.read_text()):
        assert hasattr(kinds[number], name), name
