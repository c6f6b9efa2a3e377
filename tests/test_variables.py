"""Settings that are read from the environment."""

from __future__ import annotations

import pytest

from slipstream.jobs.settings import load_settings as load_jobs
from slipstream.pipeline.settings import load_settings as load_pipeline
from slipstream.slip import load_settings as load_slips
from slipstream.variables import DATA


@pytest.mark.parametrize(("data", "folder"), [("/srv/data/", "/srv/data"), ("", DATA), (":memory:", DATA)])
def test_files_are_in_the_data_directory_unless_they_are_named(data: str, folder: str) -> None:
    environment = {"SLIPSTREAM_DATA": data, "JOBS_LEDGER": "mine.db"}
    assert load_slips({}, environment).store == f"{folder}/slips.db"
    assert load_pipeline({}, environment).tables == f"{folder}/tables"
    jobs = load_jobs({}, environment)
    assert (jobs.storage, jobs.ledger) == (f"{folder}/objects", "mine.db")
    assert load_slips({"store": "typed.db"}, environment).store == "typed.db"
