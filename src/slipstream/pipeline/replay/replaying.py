"""A replay from the question to its end, as the command line and other programs ask for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from slipstream.pipeline.errors import InvalidPipeline
from slipstream.pipeline.looking import NoSuchTable, Tables
from slipstream.pipeline.replay.asked import Asked, Question, SlipsAsked
from slipstream.pipeline.replay.composing import compose
from slipstream.pipeline.replay.errors import NoSuchTopic, ReplayUnfinished
from slipstream.pipeline.replay.failed_runs import Between, FailedRuns, SeenRuns
from slipstream.pipeline.replay.folder import Replay, Replays
from slipstream.pipeline.replay.history import History
from slipstream.pipeline.replay.selection import Seen, Selection
from slipstream.pipeline.replay.sendable import sendable, topic_of
from slipstream.pipeline.run import SPARK_LOG, root_of
from slipstream.pipeline.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from slipstream.client import Client
    from slipstream.pipeline.settings import PipelineSettings

Agree = Callable[[Seen], bool]
"""Shown what was found, says whether it is to be written."""


def question_of(settings: PipelineSettings, table: str, where: str, to: str, limit: int) -> Asked:
    """What can be known without a server and without Spark. Raises InvalidPipeline, NoSuchTable."""
    if settings.bus != "slipstream":
        raise InvalidPipeline(
            f"--bus {settings.bus}: a replay is written with commits, which only a Slipstream server has"
        )
    what = sendable(table)
    tables = Tables(root_of(settings))
    if table not in tables.names:
        raise NoSuchTable(tables.missing(table))
    wanted = to or what.stream
    return Asked(
        table=table, where=where.strip(), to=topic_of(wanted, settings.namespace) if wanted else "", limit=limit
    )


def runs_question(settings: PipelineSettings, failed_at: str, from_step: str, **given: Any) -> SlipsAsked:
    """Raises NoSuchTable."""
    tables = Tables(root_of(settings))
    if "slip_runs" not in tables.names:
        raise NoSuchTable(tables.missing("slip_runs"))
    return SlipsAsked(failed_at=failed_at, from_step=from_step or failed_at, **given)


def check_topics(client: Client, topics: list[str]) -> None:
    """Raises NoSuchTopic."""
    there = {topic.name for topic in client.offsets(topics).topics}
    if missing := [name for name in topics if name not in there]:
        raise NoSuchTopic(
            f"there is no topic {', '.join(missing)}: make it with  slipstream topic create, or name another with --to"
        )


class Asking:
    """A question whose turn it is, and what there is of an answer."""

    def __init__(self, settings: PipelineSettings, replays: Replays, question: Question, *, again: bool) -> None:
        self.settings = settings
        self._replays = replays
        self.question = question
        self.found = replays.newest(question)
        if again and self.found is not None:
            if self.found.finished is None:
                raise ReplayUnfinished(
                    f"replay {self.found.plan.id} of the same is not finished: run the command without --again, and it "
                    f"goes on; or remove {self.found.path}, and what it has not written yet stays unwritten"
                )
            self.found = None

    def compose(self, client: Client, agree: Agree) -> Replay | None:
        """Selects with Spark, and composes if people agree; None if they do not, or there is nothing."""
        with self._spark() as spark:
            return self.compose_with(spark, client, agree)

    def compose_with(self, spark: SparkSession, client: Client, agree: Agree) -> Replay | None:
        """The same in a session that is there."""
        assert isinstance(self.question, Asked)
        with contextlib.closing(History(spark, root_of(self.settings))) as history:
            selection = Selection(history, sendable(self.question.table), self.question)
            seen = selection.look()
            check_topics(client, list(seen.topics))
            if not agree(seen) or not seen.count:
                return None
            with self._replays.composing(self.question) as place:
                return compose(selection, seen, place)

    def compose_runs(self, between: Between, agree: Callable[[SeenRuns], bool]) -> Replay | None:
        """Of slips: runs that failed, to be run again."""
        assert isinstance(self.question, SlipsAsked)
        with self._spark() as spark, contextlib.closing(History(spark, root_of(self.settings))) as history:
            runs = FailedRuns(history, self.question, between, self.settings.slip_topic)
            seen = runs.look()
            if not agree(seen) or not seen.count:
                return None
            with self._replays.composing(self.question) as place:
                return runs.compose(seen, place)

    def _spark(self) -> contextlib.AbstractContextManager[SparkSession]:
        return spark_session(self.settings, root_of(self.settings) / SPARK_LOG)


@contextlib.contextmanager
def asking(
    settings: PipelineSettings, question: Question, *, again: bool = False, dry_run: bool = False
) -> Iterator[Asking]:
    """Raises ReplayBusy where somebody else is at it, ReplayUnfinished where it is asked anew and was not done. Who
    only looks waits for nobody, and leaves nothing behind."""
    replays = Replays(root_of(settings))
    with contextlib.nullcontext() if dry_run else replays.turn(question):
        yield Asking(settings, replays, question, again=again)
