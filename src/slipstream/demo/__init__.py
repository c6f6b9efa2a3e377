"""A demonstration: workers with a route table that `slipstream up` runs, and the minute that `slipstream demo` shows.

An application like any other: it knows slips, jobs, the bus and the client as their users do, and nothing below them.
"""
