"""Where router and workers keep what all of them must know: a file by default, Redis by configuration.

The bus delivers at least once. That a step has one outcome and a message one end, whoever is killed in between, is
because the first to write it down here is right, and all others follow.
"""

from slipstream.slip.store.store import Store, StoreUnavailable, Timer, Tracked

__all__ = ["Store", "StoreUnavailable", "Timer", "Tracked"]
