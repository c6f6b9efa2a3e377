"""The tasks that wait for one host, in fair order: tenants take turns, and so do the jobs of a tenant."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple


class Lane(NamedTuple):
    """The job that a task belongs to. Tasks of one lane keep their order."""

    tenant: str = ""
    job_id: str = ""


NO_LANE = Lane()


class Waiter:
    """A task that waits for its turn."""

    __slots__ = ("future", "is_begun", "is_queued", "lane")

    def __init__(self, future: asyncio.Future[None], lane: Lane, *, is_begun: bool = False) -> None:
        self.future = future
        self.lane = lane
        self.is_begun = is_begun
        """True if the task has had a turn before. Part of its file may be here, and be lost if it is sent away."""
        self.is_queued = False


class Lanes:
    """Waiters by tenant and job.

    Example:
        lanes.push(waiter)
        lanes.pop()  # the next in turn
        lanes.pop_surplus()  # the newest of the longest lane, which waits for the longest anyway
    """

    __slots__ = ("_count", "_tenants")

    def __init__(self) -> None:
        self._tenants: dict[str, dict[str, deque[Waiter]]] = {}
        """In order of their turns, and so are the jobs of each."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, waiter: Waiter) -> None:
        lane = waiter.lane
        queue = self._tenants.setdefault(lane.tenant, {}).setdefault(lane.job_id, deque())
        if waiter.is_begun:
            queue.appendleft(waiter)  # so the last of a queue is begun only if all of it are
        else:
            queue.append(waiter)
        self._count += 1
        waiter.is_queued = True

    def pop(self) -> Waiter:
        """Remove and return the next waiter. Its tenant and its job have their next turn after all others."""
        tenant, jobs = next(iter(self._tenants.items()))
        job_id, queue = next(iter(jobs.items()))
        waiter = queue.popleft()
        waiter.is_queued = False
        self._count -= 1
        del jobs[job_id]
        if queue:
            jobs[job_id] = queue
        del self._tenants[tenant]
        if jobs:
            self._tenants[tenant] = jobs
        return waiter

    def pop_surplus(self) -> Waiter | None:
        """Remove and return the newest waiter of the longest job of the tenant with the most waiters; among equals of
        the one whose turn comes last. Tasks that were begun stay: None if there are no others."""
        longest: tuple[tuple[int, int], Waiter] | None = None
        for jobs in self._tenants.values():
            of_tenant = sum(map(len, jobs.values()))
            for queue in jobs.values():
                length = (of_tenant, len(queue))
                if not queue[-1].is_begun and (longest is None or length >= longest[0]):
                    longest = length, queue[-1]
        if longest is None:
            return None
        self.remove(longest[1])
        return longest[1]

    def pop_begun(self) -> Waiter:
        """Remove and return a waiter of the tenant and job whose turn comes last, where all were begun."""
        waiter = next(reversed(next(reversed(self._tenants.values())).values()))[-1]
        self.remove(waiter)
        return waiter

    def remove(self, waiter: Waiter) -> None:
        waiter.is_queued = False
        lane = waiter.lane
        jobs = self._tenants[lane.tenant]
        queue = jobs[lane.job_id]
        if queue[-1] is waiter:
            queue.pop()
        else:
            queue.remove(waiter)
        self._count -= 1
        if not queue:
            del jobs[lane.job_id]
        if not jobs:
            del self._tenants[lane.tenant]
