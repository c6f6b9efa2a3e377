"""Slipstream: a durable message broker that speaks the DriftQ v1 HTTP API, and what is built on it.

The rooms, top to bottom; each may use only those below it:

- `cli`     the command line
- `server`  HTTP on one port
- `router`  who decides where a message goes, before it is stored
- `engine`  runs the broker on an event loop with a real clock and a real disk
- `broker`  the delivery rules: a state machine without I/O
- `store`   journal, segments, checkpoints: the only code that touches the data directory
"""

__version__ = "0.1.0"
