"""Routing slips: a message carries its itinerary with it, each service does its step, and anyone can see where it is.

Everything here is an application of the bus (`slipstream.bus`) and runs unchanged on each of its engines. What a slip
is and how it advances (`event`, `itinerary`) touches neither bus nor clock; `router` and `worker` do, and `store` keeps
what must be known by all of them: which attempt ended how, what waits for whom, and what is over.
"""
