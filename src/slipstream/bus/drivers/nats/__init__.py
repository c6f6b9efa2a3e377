"""NATS: JetStream, which stores and redelivers, or core NATS, which does neither and is as fast as that sounds."""

from __future__ import annotations

import logging

from slipstream.bus.drivers.driver import Driver
from slipstream.bus.drivers.nats.core_nats import CoreDriver
from slipstream.bus.drivers.nats.jetstream import JetStreamDriver
from slipstream.bus.settings import BusSettings

log = logging.getLogger(__name__)

__all__ = ["CoreDriver", "JetStreamDriver", "make_nats_driver"]


def make_nats_driver(settings: BusSettings) -> Driver:
    if settings.nats_jetstream:
        return JetStreamDriver(settings)
    log.warning(
        "NATS_JETSTREAM=false: this bus is AT MOST ONCE. What nobody listens to is lost, and so is what a consumer had "
        "in hand when it died, and what it was retrying. Unset it for at-least-once delivery."
    )
    return CoreDriver(settings)
