"""The report: one HTML page of plots and tables about what went through, drawn here from the tables and nothing else.

Reads through `looking`; writes nothing. The command line puts the page into a file.
"""

from slipstream.pipeline.report.lineage import NoSuchRun
from slipstream.pipeline.report.page import render

__all__ = ["NoSuchRun", "render"]
