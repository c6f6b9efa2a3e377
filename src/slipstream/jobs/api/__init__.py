"""The HTTP API: `POST /jobs` for crawlers, `/operators/…` for those who look after them, `/metrics` for machines.

It turns requests into calls of the service and answers into JSON; no rule about jobs lives here.
"""

from slipstream.jobs.api.app import create_app

__all__ = ["create_app"]
