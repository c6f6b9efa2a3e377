"""What router and workers have at hand."""

from __future__ import annotations

from slipstream.bus import Bus
from slipstream.slip.ledger import Ledger
from slipstream.slip.metrics import metrics_in
from slipstream.slip.outbox import Outbox
from slipstream.slip.reporter import Reporter
from slipstream.slip.rules import rules_of
from slipstream.slip.settings import SlipSettings
from slipstream.slip.store import Store
from slipstream.slip.unserved import UnservedTopics


class Kit:
    """A bus and a store, and all that stands on these."""

    def __init__(self, bus: Bus, store: Store, settings: SlipSettings, name: str) -> None:
        self.bus = bus
        self.store = store
        self.settings = settings
        self.rules = rules_of(settings)
        self.ledger = Ledger(store, settings.ttl_ms)
        self.reporter = Reporter(bus, name)
        self.outbox = Outbox(bus)
        self.metrics = metrics_in(bus.registry)
        self.unserved = UnservedTopics(bus, store, settings, self.metrics)
