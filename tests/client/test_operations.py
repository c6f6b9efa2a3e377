"""Messages that an operator helps, with the client."""

from __future__ import annotations

from slipstream.api import Place
from slipstream.client import AsyncClient
from tests.client.loop import in_loop
from tests.server_process import ServerProcess

HOUR_MS = 3_600_000


@in_loop
async def test_every_operation_reaches_the_broker(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base) as client:
        await client.produce_batch(topic, ["retried", "rejected", "discarded", "released", "held"])
        owner = f"crashed-{topic}"
        first, *_ = await client.fetch(topic, "g", owner=owner, lease_ms=HOUR_MS)
        await first.nack("boom", delay_ms=HOUR_MS)
        state = await client.message_state(topic, "g", 0, 0)
        assert (state.state, state.history[0].error) == ("waiting", "boom")
        assert (await client.retry_now(topic, "g", [Place(0, 0)])).done == 1
        assert (await client.reject_messages(topic, "g", [Place(0, 1)], reason="bad")).done == 1
        assert (await client.discard_messages(topic, "g", [Place(0, 2)])).done == 1
        assert (await client.release_messages(topic, "g", [Place(0, 3)])).done == 1
        extended = await client.extend_messages(topic, "g", [Place(0, 4), Place(0, 99)], lease_ms=2 * HOUR_MS)
        assert (extended.done, [each.error for each in extended.failed]) == (1, ["NOT_FOUND"])
        assert (await client.release_owner(owner, topic=topic, group="g")).released == 1
        found = await client.fetch(topic, "g", wait_ms=20_000)
        assert [(each.text, each.attempts) for each in found] == [("retried", 2), ("released", 2), ("held", 2)]
        (letter,) = [letter async for letter in client.dead_letters(topic)]
        assert letter.value == b"rejected"
