"""The calls of the console. They are described here with all others, and answered by the application that the server is
given for them: its own, or one that asks another process."""

from __future__ import annotations

from slipstream.api.bus_dead_letters import (
    BusDeadLetter,
    BusDeadLetterHandled,
    BusDeadLetterList,
    BusDeadLettersQuery,
    BusRedriveRequest,
)
from slipstream.api.jobs import (
    JobDeadLetters,
    JobDeadLettersQuery,
    JobInfo,
    JobList,
    JobLogLine,
    JobLogQuery,
    JobReplayed,
    JobReplayRequest,
    JobRequeued,
    JobsQuery,
)
from slipstream.api.logs import LogAnswer, LogQuery
from slipstream.api.media import EVENTS, JSON
from slipstream.api.overview import (
    AcknowledgementQuery,
    AcknowledgeRequest,
    OverviewAnswer,
    OverviewQuery,
    PartList,
    SearchAnswer,
    SearchQuery,
)
from slipstream.api.slips import (
    CancellationRequest,
    CancellationTaken,
    PauseRequest,
    RerunRequest,
    RerunTaken,
    SignalRequest,
    SignalTaken,
    SlipDetails,
    SlipList,
    SlipQuery,
    StepInfo,
    StepList,
)
from slipstream.api.tables import Decoded, DecodeRequest, SqlAnswer, SqlRequest, TableList, TableQuery, TableRows
from slipstream.server.v2.endpoint import Endpoint

_SLIP = "/v2/slips/{slip:path}"
_JOB = "/v2/jobs/{job:path}"
_BUS_DEAD_LETTER = "/v2/bus-dead-letters/{topic}/{partition}/{offset}"
_PAUSE = "/v2/steps/{step:path}/pause"

ENDPOINTS = [
    Endpoint(
        method="GET",
        path="/v2/overview",
        summary="What is going on and what is wrong, live or once",
        query=OverviewQuery,
        answer=OverviewAnswer,
        media_types=(JSON, EVENTS),
    ),
    Endpoint(
        method="POST",
        path="/v2/acknowledgements",
        summary="Acknowledge a problem of the overview",
        body=AcknowledgeRequest,
        status=204,
    ),
    Endpoint(
        method="DELETE",
        path="/v2/acknowledgements",
        summary="Show an acknowledged problem again",
        query=AcknowledgementQuery,
        status=204,
    ),
    Endpoint(method="GET", path="/v2/parts", summary="The processes of slipstream up", answer=PartList),
    Endpoint(method="GET", path="/v2/logs", summary="What the parts logged of an id", query=LogQuery, answer=LogAnswer),
    Endpoint(method="GET", path="/v2/search", summary="Where an id leads", query=SearchQuery, answer=SearchAnswer),
    Endpoint(method="GET", path="/v2/slips", summary="List slips", query=SlipQuery, answer=SlipList),
    Endpoint(
        method="POST",
        path=_SLIP + "/signals",
        summary="Approve, deny or tell a slip that waits",
        body=SignalRequest,
        answer=SignalTaken,
        status=202,
    ),
    Endpoint(
        method="POST",
        path=_SLIP + "/reruns",
        summary="Run a slip again from a step on",
        body=RerunRequest,
        answer=RerunTaken,
        status=202,
    ),
    Endpoint(
        method="POST",
        path=_SLIP + "/cancellation",
        summary="End a slip that is under way",
        body=CancellationRequest,
        answer=CancellationTaken,
        status=202,
    ),
    Endpoint(method="GET", path=_SLIP, summary="Describe a slip", answer=SlipDetails),
    Endpoint(method="GET", path="/v2/steps", summary="List the steps of slips", answer=StepList),
    Endpoint(method="PUT", path=_PAUSE, summary="Pause a step", body=PauseRequest, answer=StepInfo),
    Endpoint(method="DELETE", path=_PAUSE, summary="Resume a step", answer=StepInfo),
    Endpoint(method="GET", path="/v2/jobs", summary="List download jobs", query=JobsQuery, answer=JobList),
    Endpoint(
        method="GET",
        path=_JOB + "/logs",
        summary="The logs of a job, live",
        query=JobLogQuery,
        answer=JobLogLine,
        media_types=(EVENTS,),
    ),
    Endpoint(method="GET", path=_JOB, summary="Describe a job", answer=JobInfo),
    Endpoint(method="POST", path=_JOB + "/cancel", summary="Cancel a job", answer=JobInfo),
    Endpoint(method="POST", path=_JOB + "/pause", summary="Pause a job", answer=JobInfo),
    Endpoint(method="POST", path=_JOB + "/resume", summary="Resume a job that was paused", answer=JobInfo),
    Endpoint(
        method="POST",
        path=_JOB + "/requeue",
        summary="Publish the tasks again that a job lacks",
        answer=JobRequeued,
    ),
    Endpoint(
        method="GET",
        path="/v2/job-dead-letters",
        summary="List tasks of jobs that were given up",
        query=JobDeadLettersQuery,
        answer=JobDeadLetters,
    ),
    Endpoint(
        method="POST",
        path="/v2/job-replays",
        summary="Replay or discard tasks that were given up",
        body=JobReplayRequest,
        answer=JobReplayed,
    ),
    Endpoint(
        method="GET",
        path="/v2/bus-dead-letters",
        summary="List dead letters of the bus",
        query=BusDeadLettersQuery,
        answer=BusDeadLetterList,
    ),
    Endpoint(method="GET", path=_BUS_DEAD_LETTER, summary="Show a dead letter of the bus", answer=BusDeadLetter),
    Endpoint(
        method="DELETE",
        path=_BUS_DEAD_LETTER,
        summary="Discard a dead letter of the bus",
        answer=BusDeadLetterHandled,
    ),
    Endpoint(
        method="POST",
        path=_BUS_DEAD_LETTER + "/redrive",
        summary="Publish a dead letter of the bus again",
        body=BusRedriveRequest,
        answer=BusDeadLetterHandled,
    ),
    Endpoint(method="GET", path="/v2/tables", summary="List the pipeline's tables", answer=TableList),
    Endpoint(
        method="POST", path="/v2/tables/query", summary="Ask the tables in SQL", body=SqlRequest, answer=SqlAnswer
    ),
    Endpoint(method="GET", path="/v2/tables/{table}", summary="Show a table", query=TableQuery, answer=TableRows),
    Endpoint(
        method="POST",
        path="/v2/decoded",
        summary="Decode a message of the streams of jobs",
        body=DecodeRequest,
        answer=Decoded,
    ),
]
