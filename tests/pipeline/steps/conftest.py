"""A server for the tests of a process, and topics of its own for each of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from tests.pipeline.steps.site import Site
from tests.server_process import ServerProcess

_numbers = itertools.count()


@pytest.fixture
def site(shared: ServerProcess) -> Iterator[Site]:
    found = Site(shared.base, f"s{os.getpid()}.{next(_numbers)}.")
    with found.client:
        yield found
