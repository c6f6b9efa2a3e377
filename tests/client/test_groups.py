"""Groups, against a server."""

from __future__ import annotations

import datetime as dt

import pytest

from slipstream.client import AsyncClient, InvalidArgument, NotFound
from tests.client.loop import in_loop
from tests.server_process import ServerProcess


@in_loop
async def test_a_group_is_looked_at_moved_stopped_and_forgotten(shared: ServerProcess, topic: str) -> None:
    async with AsyncClient(shared.base, owner="me") as client:
        await client.produce_batch(topic, ["a", "b", "c"])
        (first,) = await client.fetch(topic, "g", max_messages=1)
        await first.ack()
        (second,) = await client.fetch(topic, "g", max_messages=1)
        info = await client.group(topic, "g")
        assert (info.lag, [message.owner for message in info.messages]) == (2, ["me"])
        assert [group.group for group in await client.groups(topic)] == ["g"]

        assert (await client.pause(topic, "g")).paused
        assert await client.fetch(topic, "g") == []
        assert not (await client.resume(topic, "g")).paused

        assert (await client.seek(topic, "g", to="latest")).lag == 0
        assert (await client.seek(topic, "g", offset=second.offset)).lag == 2
        tomorrow = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
        assert (await client.seek(topic, "g", time=tomorrow, partition=0)).lag == 0
        assert (await client.seek(topic, "g", to="earliest")).lag == 3
        with pytest.raises(InvalidArgument):
            await client.seek(topic, "g")

        await client.forget_group(topic, "g")
        with pytest.raises(NotFound):
            await client.group(topic, "g")
