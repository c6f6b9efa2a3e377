"""A site is an engine that really runs, for the behaviour suite: one module a driver, all with the same skeleton."""
