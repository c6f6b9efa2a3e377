"""The streaming queries: which topics each reads, what its tasks write, and what the driver makes of that.

There are three, for what belongs together is read once: `messages`, `jobs` and `slips`. A batch is a list of ranges of
the log; Spark's tasks read their ranges themselves, decode and write files, and give back what a commit has to say of
them. So no message goes through Spark's rows, which costs 20 µs each with a map in it. The driver commits the files and
folds what they say into the other tables, each commit stamped with the batch, so that none is made twice.
"""

from slipstream.pipeline.queries.batch import Anew, Batch, Renewed, Touched
from slipstream.pipeline.queries.query import QUERIES, Query, queries_of

__all__ = ["QUERIES", "Anew", "Batch", "Query", "Renewed", "Touched", "queries_of"]
