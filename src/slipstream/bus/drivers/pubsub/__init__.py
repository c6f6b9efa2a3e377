"""Google Pub/Sub: one subscription a group, messages on lease by a streaming pull, retries kept here.

What Pub/Sub is not told by the bus it does by itself: it hands out again what nobody acks, in order for each key. What
it cannot do, the bus does: it redelivers a nacked message at once, so pauses between attempts are waited for here, with
the message on lease; and it drops what is published to a topic without a subscription, so dead letters get one.
"""

from slipstream.bus.drivers.pubsub.connection import PubSubNative
from slipstream.bus.drivers.pubsub.driver import PubSubDriver

__all__ = ["PubSubDriver", "PubSubNative"]
