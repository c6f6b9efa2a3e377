"""Tasks that wait for a bundle, by the host they go to."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable

import msgspec

from slipstream.jobs.download.limits import Share
from slipstream.jobs.handed import Handed
from slipstream.jobs.task_runner import Outcome
from slipstream.pipeline.downloads.places import Places


class Task:
    """In the hands of the driver until it is known what became of it."""

    __slots__ = ("ended", "handed", "host", "job_id", "together_max")

    def __init__(
        self, handed: Handed, host: str, job_id: str, ended: asyncio.Future[Outcome], together_max: int
    ) -> None:
        self.handed = handed
        self.host = host
        self.job_id = job_id
        self.ended = ended
        """Done also when nobody wants to know any more."""
        self.together_max = together_max
        """Tasks in a bundle with it: few, where a bundle with it has killed its process before."""


class Bundle(msgspec.Struct):
    tasks: list[Task]
    shares: dict[str, Share]
    is_slow: bool = False
    """Of tasks that took too long for another bundle: it may take as long as they do."""


class Waiting:
    """Example:
    waiting.put(task)
    bundle = waiting.bundle(512, now)  # of those whose hosts have a place
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        self._by_host: dict[str, deque[Task]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, task: Task) -> None:
        self._by_host.setdefault(task.host, deque()).append(task)
        self._count += 1

    def put_back(self, tasks: list[Task]) -> None:
        """Those that had their turn, and were not begun: before the others."""
        for task in reversed(tasks):
            self._by_host.setdefault(task.host, deque()).appendleft(task)
        self._count += len(tasks)

    def pop_surplus(self) -> Task:
        """Remove and return the newest task of the host with the most; among equals of the host whose turn is last."""
        host = max(reversed(self._by_host), key=lambda each: len(self._by_host[each]))
        task = self._by_host[host].pop()
        self._count -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        return task

    def remove_where(self, is_wanted: Callable[[Task], bool]) -> list[Task]:
        """Remove and return the tasks that `is_wanted` is true of."""
        removed: list[Task] = []
        for host, queue in list(self._by_host.items()):
            wanted = [is_wanted(task) for task in queue]
            if not any(wanted):
                continue
            removed += [task for task, is_out in zip(queue, wanted, strict=True) if is_out]
            kept = deque(task for task, is_out in zip(queue, wanted, strict=True) if not is_out)
            if kept:
                self._by_host[host] = kept
            else:
                del self._by_host[host]
        self._count -= len(removed)
        return removed

    def remove(self, host: str) -> list[Task]:
        """All that wait for it."""
        tasks = list(self._by_host.pop(host, ()))
        self._count -= len(tasks)
        return tasks

    def clear(self) -> list[Task]:
        tasks = [task for queue in self._by_host.values() for task in queue]
        self._by_host.clear()
        self._count = 0
        return tasks

    def ready_at(self, now: float) -> float | None:
        """When the next host that is held may be asked again, of those that tasks wait for; None if none is."""
        times = (self._places.ready_at(host) for host in self._by_host)
        return min((time for time in times if time > now), default=None)

    def bundle(self, size: int, now: float, *, at_once: bool = False) -> Bundle:
        """A task of each host in turn, so that a bundle is not all of one. Empty if no host has a place. `at_once`: no
        more of a host than may be under way together."""
        made = Bundle([], {})
        open_hosts = deque(self._take_places(made, now))
        taken: Counter[str] = Counter()
        while open_hosts and len(made.tasks) < size:
            host = open_hosts.popleft()
            queue = self._by_host[host]
            task = self._next(queue, len(made.tasks))
            if task is None:
                continue
            size = min(size, task.together_max)
            made.tasks.append(task)
            taken[host] += 1
            is_full = at_once and taken[host] == made.shares[host].concurrency
            if queue and not is_full:
                open_hosts.append(host)
        self._tidy(made)
        return made

    def _take_places(self, made: Bundle, now: float) -> list[str]:
        hosts = []
        for host in self._by_host:
            if self._places.ready_at(host) > now:
                continue
            share = self._places.take(host)
            if share is not None:
                made.shares[host] = share
                hosts.append(host)
        return hosts

    def _next(self, queue: deque[Task], together: int) -> Task | None:
        """Passing over those that nobody waits for any more. None also if it may not be together with so many."""
        while queue:
            if not queue[0].ended.done() and queue[0].together_max <= together:
                return None
            task = queue.popleft()
            self._count -= 1
            if not task.ended.done():
                return task
        return None

    def _tidy(self, made: Bundle) -> None:
        """Hosts of which nothing is in it keep their turn, and not their place; the others come after all that wait."""
        used = {task.host for task in made.tasks}
        for host in list(made.shares):
            if host not in used:
                self._places.give_back(host, made.shares.pop(host))
            if host in used or not self._by_host[host]:
                queue = self._by_host.pop(host)
                if queue:
                    self._by_host[host] = queue
