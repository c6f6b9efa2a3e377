"""The public names of jobs, which are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest

from slipstream import jobs


@pytest.mark.parametrize("name", jobs.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(jobs, name) is getattr(jobs, name)


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(AttributeError, match=r"module 'slipstream\.jobs' has no attribute 'Nope'"):
        _ = jobs.Nope  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["", "import slipstream.jobs.provision", "import slipstream.jobs.service"])
def test_a_function_that_is_called_like_its_module_is_the_function(first: str) -> None:
    program = f"{first}\nfrom slipstream.jobs import provision\nassert callable(provision)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_messages_and_streams_need_nothing_that_is_heavy() -> None:
    program = (
        "import sys, slipstream.jobs.jobs_pb2, slipstream.jobs.messages, slipstream.jobs.streams; "
        "print([name for name in ('aiohttp', 'obstore', 'starlette', 'uvicorn', 'pyarrow') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ran.stdout == "[]\n"
