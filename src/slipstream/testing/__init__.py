"""For tests of programs that use Slipstream: a broker in memory whose clock the test moves.

    from slipstream.testing import MemoryBroker

    with MemoryBroker() as broker, broker.client() as client:
        client.create_topic("mail")
        client.produce("mail", "hello", delay_ms=3_600_000)
        broker.advance(hours=1)
        (message,) = client.fetch("mail", "senders")

It is the real server on a free port of this machine, with the real delivery rules, so clients of any kind may talk to
it; only the disk and the time are not real. Nothing sleeps: leases, retries, delays and deadlines happen when the test
says so. With pytest, ask for the fixture `slipstream_broker`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.testing.broker import MemoryBroker

__all__ = ["MemoryBroker"]


def __getattr__(name: str) -> object:
    """Only when it is asked for: pytest loads the plugin in this package for every project, and this takes a second."""
    if name == "MemoryBroker":
        from slipstream.testing.broker import MemoryBroker  # noqa: PLC0415

        return MemoryBroker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
