"""Downloads on Spark: what a worker of `slipstream.jobs` does, on the executors of a cluster.

The driver is a member of the group of workers, as any other: it takes tasks, and settles them. What is done with a task
is done by the task runner of jobs, in a bundle with others, in a process of Spark. This room knows jobs and the bus;
nothing knows it but the command line.
"""
