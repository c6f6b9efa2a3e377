"""Steps of routing slips whose work is a function of many messages at a time, on Spark.

A runner reads the step's topic in the name of the step's group, has tasks call the function, and stores the answers and
the group's place in one commit (ADR 29). Executors need nothing but the server: what a worker of ours writes into the
store, the router writes for them, as for services elsewhere. Touches the client, the log (`pipeline.source`) and what a
slip is (`slip`); neither bus nor store.
"""

from slipstream.pipeline.steps.errors import InvalidStep
from slipstream.pipeline.steps.step import SparkStep, spark_step

__all__ = ["InvalidStep", "SparkStep", "spark_step"]
