"""Does a step on Spark, window after window, until it is told to stop.

Windows are computed ahead, some jobs at a time, and committed in their order: a commit is the answers and the group's
place, in one frame of the journal. So nothing has to be remembered here. Whoever begins asks where the group is, and
whoever is killed has committed a window or has not.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import msgspec

from slipstream.client import Client, Overloaded, SlipstreamError
from slipstream.pipeline.errors import PipelineError
from slipstream.pipeline.source import open_log
from slipstream.pipeline.steps.errors import StepTrouble
from slipstream.pipeline.steps.place import Busy, MovedOn, Place, Position, TooMuch
from slipstream.pipeline.steps.task import Done, Order
from slipstream.pipeline.steps.window import Window, behind, windows_of
from slipstream.pipeline.steps.work import Apart, Task, check_guilt, do_orders, first_line, story
from slipstream.pipeline.tasks import parallelism_of
from slipstream.slip.event import StepError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.pipeline.settings import PipelineSettings
    from slipstream.pipeline.source.standing import TopicStanding
    from slipstream.pipeline.steps.step import SparkStep

log = logging.getLogger(__name__)

SEQUENCES = 1 << 20
"""Between the numbers of two windows: for those that a window is taken apart into."""
FIRST_PAUSE_S = 0.5
FIRST_ROWS = 200
JOB_S = 20.0
"""How long a job should take, at most: what it has staged waits for its end, and who stops the step does, too."""
SHARED_ROWS = 1_000
"""A task more costs as much as some hundred messages."""
TASKS_PER_CORE = 4
"""Of a job: Java takes 70 ms for one, however many tasks it has, which is as much as Python takes for half of one."""


class Told(msgspec.Struct, frozen=True):
    """A window that is committed."""

    step: str
    counts: dict[str, int]
    lag: int
    """What lies behind it, at least."""

    @property
    def messages(self) -> int:
        return sum(self.counts.values())


class Pauses(Protocol):
    """Whether people, or the function itself, want the step to wait."""

    def reason(self, step_id: str) -> str | None:
        """None where it may be done."""

    def hold(self, step_id: str, reason: str, seconds: float) -> None:
        """The function asks for a pause."""


Work: TypeAlias = tuple[list[Done], float]
"""What a job has done, and how long it took."""


class StepRunner:
    """One step."""

    def __init__(
        self,
        spark: SparkSession,
        step: SparkStep[Any, Any],
        settings: PipelineSettings,
        *,
        prefix: str = "",
        held: Pauses | None = None,
        told: Callable[[Told], None] = lambda _: None,
        waits: Callable[[str, str], None] = lambda step, why: None,
        parallelism: int | None = None,
    ) -> None:
        self._spark = spark
        self._step = step
        self._settings = settings
        self._prefix = prefix
        self._held = held
        self._told = told
        self._waits = waits
        self._parallelism = parallelism or parallelism_of(spark)
        self._rows_max = min(step.rows, settings.step_rows) if step.kind == "frame" else settings.step_rows
        self._rows = min(self._rows_max, FIRST_ROWS)
        """Windows begin small, and grow while jobs are short: a model may take a second for a message, and what is
        staged waits for an hour at most."""
        self._run = secrets.token_hex(8)
        """Of this runner: what it stages is told from what others have left, and its words from those of functions."""
        self._sequence = 0
        self._committed = 0
        """Windows."""
        self._standing: TopicStanding
        self._stop: threading.Event

    def run(self, stop: threading.Event, *, once: bool = False) -> None:
        """Until `stop`, or with `once` until all that is there is done. Raises PipelineError where it cannot go on."""
        self._stop = stop
        pause_s = FIRST_PAUSE_S
        with (
            Client(self._settings.url) as client,
            open_log({"url": self._settings.url, "failOnDataLoss": "false"}) as reading,
            ThreadPoolExecutor(self._settings.step_jobs, f"step-{self._step.step_id}") as jobs,
        ):
            self._place = Place(client, reading, self._step, self._prefix)
            while not stop.is_set():
                committed = self._committed
                try:
                    self._work(jobs, stop, once=once)
                    if once:
                        return
                except MovedOn as error:
                    log.info("step %s begins again from where its group is: %s", self._step.step_id, error)
                    pause_s = FIRST_PAUSE_S
                except (Busy, StepTrouble, SlipstreamError) as error:
                    pause_s = FIRST_PAUSE_S if self._committed > committed else pause_s
                    log.warning("step %s waits for %g s: %s", self._step.step_id, pause_s, error)
                    if not isinstance(error, Busy):  # who is paused, or has not the turn, is well
                        self._waits(self._step.step_id, str(error))
                    stop.wait(pause_s)
                    pause_s = min(pause_s * 2, self._settings.step_retry_longest_ms / 1000)

    def _work(self, jobs: ThreadPoolExecutor, stop: threading.Event, *, once: bool) -> None:
        """From where the group is, until something is in the way."""
        standing = self._place.standing()
        if standing is None:
            raise StepTrouble(f"there is no topic {self._place.topic}")
        self._standing = standing
        position = self._place.position(standing)
        self._sequence = max(self._sequence, self._place.last_sequence())
        self._waits(self._step.step_id, "")
        ahead: deque[tuple[list[Task], Future[Work]]] = deque()
        try:
            while True:
                self._check_held()
                while len(ahead) < self._settings.step_jobs and not stop.is_set():
                    tasks, position = self._plan(position)
                    if not tasks:
                        break
                    ahead.append((tasks, jobs.submit(self._do, [task.order for task in tasks])))
                if ahead:
                    self._conclude(*ahead[0])
                    ahead.popleft()
                elif stop.is_set() or once:
                    return
                else:
                    self._look(position, wait=True)
        finally:
            self._give_up(ahead)

    def _check_held(self) -> None:
        if self._held is not None and (reason := self._held.reason(self._step.step_id)) is not None:
            raise Busy(f"it is paused: {reason or 'no reason was given'}")

    # What is next

    def _plan(self, position: Position) -> tuple[list[Task], Position]:
        """A job's worth of what lies before the group, if anything does."""
        windows = self._windows(position)
        if not windows:
            self._look(position, wait=False)
            windows = self._windows(position)
        if not windows:
            return [], position
        tasks = [Task(window, self._order(window, self._next_sequence(), None)) for window in windows]
        return tasks, msgspec.structs.replace(position, starts=behind(position.starts, windows[-1].end))

    def _windows(self, position: Position) -> list[Window]:
        end = self._standing.end
        least = min(position.starts.values(), default=end)
        many = 1 if self._step.kind == "frame" else self._parallelism * TASKS_PER_CORE
        rows = self._rows
        if many > 1 and end - least < many * rows:
            rows = max(-(-(end - least) // many), min(self._rows, SHARED_ROWS))  # a little is shared out, too
        return windows_of(position.starts, min(end, least + many * rows), rows)[:many]

    def _look(self, position: Position, *, wait: bool) -> None:
        """At how far the topic reaches. Raises MovedOn where it is another."""
        found = self._place.standing(self._standing if wait else None)
        if found is None or found.incarnation != position.incarnation:
            raise MovedOn(f"{self._place.topic} was deleted, or created again")
        if {each.number for each in found.partitions} != set(position.starts):
            raise MovedOn(f"{self._place.topic} has {len(found.partitions)} partitions now")
        self._standing = found

    def _order(self, window: Window, sequence: int, error: StepError | None) -> Order:
        return Order(
            url=self._settings.url,
            prefix=self._prefix,
            ranges=window.ranges(self._place.topic, self._standing.incarnation),
            writer=self._place.writer,
            sequence=sequence,
            attempt=self._run,
            error=error,
        )

    def _next_sequence(self) -> int:
        self._sequence += SEQUENCES
        return self._sequence

    # What becomes of it

    def _conclude(self, tasks: Sequence[Task], job: Future[Work]) -> None:
        """Commits the windows of a job, in their order."""
        try:
            done, took_s = job.result()
        except Exception as error:
            if self._stop.is_set():
                raise StepTrouble(f"a job was given up: {first_line(error)}") from error
            check_guilt(error, self._step, self._run)
            log.warning("step %s: a job has failed, and is taken apart: %s", self._step.step_id, story(error))
            for task in tasks:
                self._commit_apart(task)
            return
        for task, each in zip(tasks, done, strict=True):
            if each.fault:
                log.warning("step %s: a window has a fault, and is taken apart: %s", self._step.step_id, each.fault)
                self._commit_apart(task)
            else:
                self._commit(task, each)
        self._adapt(took_s)

    def _do(self, orders: Sequence[Order]) -> tuple[list[Done], float]:
        began = time.monotonic()
        return do_orders(self._spark, self._step, orders), time.monotonic() - began

    def _adapt(self, took_s: float) -> None:
        """The next jobs shall take as long as a job should."""
        if took_s > JOB_S:
            self._rows = max(1, int(self._rows * JOB_S / took_s))
        elif took_s < JOB_S / 4:
            self._rows = min(self._rows_max, self._rows * 2)

    def _commit_apart(self, task: Task) -> None:
        apart = Apart(self._spark, self._step, self._order, task.order.sequence, self._stop)
        for piece, done in apart.pieces(task.window):
            self._commit(piece, done)
        self._rows = max(1, self._rows // 2)

    def _commit(self, task: Task, done: Done) -> None:
        self._check(done)
        while True:
            try:
                self._place.commit(task.order.sequence, done.staged, task.window, self._standing.incarnation)
                break
            except MovedOn:
                # Perhaps because what was staged has waited for too long.
                self._rows = max(1, self._rows // 2)
                raise
            except TooMuch as error:
                self._plan_smaller(task.window, error)
            except Overloaded as error:
                # What is staged waits for a while: to do the work again would not help a router that is behind.
                log.warning("step %s cannot store its answers yet: %s", self._step.step_id, error)
                if self._stop.wait(error.retry_after_ms / 1000):
                    raise StepTrouble("the router is behind, and we are to stop") from error
        self._committed += 1
        self._told(Told(self._step.step_id, done.counts, max(0, self._standing.end - task.window.end)))

    def _plan_smaller(self, window: Window, error: TooMuch) -> NoReturn:
        if window.width == 1:
            raise PipelineError(f"the answers of step {self._step.step_id} cannot be stored: {error}") from error
        self._rows_max = self._rows = max(1, window.width // 2)
        raise MovedOn(f"{error}; going on with {self._rows} at a time") from error

    def _check(self, done: Done) -> None:
        """Raises StepTrouble where nothing is known of a window."""
        if done.is_overloaded:
            # For good: what is under way at a time has no room there, and would not have it later.
            self._rows_max = self._rows = max(1, self._rows // 2)
        if done.pause_s and self._held is not None:
            self._held.hold(self._step.step_id, done.trouble, done.pause_s)
        if done.trouble:
            raise StepTrouble(done.trouble)

    def _give_up(self, ahead: Sequence[tuple[Sequence[Task], Future[Work]]]) -> None:
        """What was computed ahead of what failed is of no use: it is made again from where the group is."""
        for _, job in ahead:
            job.cancel()
        wait(job for _, job in ahead)
        for tasks, _ in ahead:
            for task in tasks:
                with contextlib.suppress(SlipstreamError):  # it is forgotten by itself, after an hour
                    self._place.take_back(task.order.sequence)
