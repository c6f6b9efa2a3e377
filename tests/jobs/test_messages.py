"""The messages of the streams: the schema as it was agreed on, what is canonical, and what passes through unread."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from slipstream.jobs import jobs_pb2
from slipstream.jobs.errors import MalformedMessage
from slipstream.jobs.messages import (
    DeadLetterTask,
    DownloadTask,
    HttpHeader,
    JobLog,
    JobStatus,
    LogLevel,
    check_trace_id,
    decode,
    decode_task,
    encode,
    encode_task,
    from_json,
    to_json,
)

ROOT = Path(__file__).parent.parent.parent

MESSAGES = {
    "HttpHeader": {"name": (1, "string"), "value": (2, "string")},
    "StorageHint": {"bucket": (1, "string"), "key_prefix": (2, "string"), "metadata": (3, "map string")},
    "ProxyHint": {"primary_pool": (1, "string"), "fallbacks": (2, "repeated string")},
    "TaskAttributes": {
        "tags": (1, "map string"),
        "checksum_hint": (2, "string"),
        "mime_hint": (3, "string"),
        "extra": (4, "bytes"),
    },
    "DownloadTask": {
        "job_id": (1, "string"),
        "job_type": (2, "string"),
        "resource_id": (3, "string"),
        "url": (4, "string"),
        "headers": (5, "repeated HttpHeader"),
        "proxy_hint": (6, "ProxyHint"),
        "storage_hint": (7, "StorageHint"),
        "attributes": (8, "TaskAttributes"),
        "manifest_key": (9, "string"),
        "attempt": (10, "uint32"),
        "tenant": (11, "string"),
        "trace_id": (12, "string"),
    },
    "JobStatus": {
        "job_id": (1, "string"),
        "job_type": (2, "string"),
        "state": (3, "JobState"),
        "resources_total": (4, "uint32"),
        "resources_completed": (5, "uint32"),
        "resources_failed": (6, "uint32"),
        "manifest_key": (7, "string"),
        "tenant": (8, "string"),
        "last_error_code": (9, "string"),
        "last_error_message": (10, "string"),
        "log_offset": (11, "uint64"),
        "timestamp_ms": (12, "uint64"),
    },
    "JobLog": {
        "job_id": (1, "string"),
        "resource_id": (2, "string"),
        "level": (3, "LogLevel"),
        "message": (4, "string"),
        "fields": (5, "map string"),
        "timestamp_ms": (6, "uint64"),
        "trace_id": (7, "string"),
    },
    "DeadLetterTask": {
        "task": (1, "DownloadTask"),
        "failure_code": (2, "string"),
        "failure_message": (3, "string"),
        "attempts": (4, "uint32"),
        "failed_at_ms": (5, "uint64"),
    },
}
ENUMS = {
    "JobState": [
        "JOB_STATE_UNKNOWN",
        "JOB_STATE_QUEUED",
        "JOB_STATE_IN_PROGRESS",
        "JOB_STATE_PARTIAL",
        "JOB_STATE_COMPLETED",
        "JOB_STATE_FAILED",
        "JOB_STATE_CANCELLED",  # ours, and so is the next: the specification ends before them
        "JOB_STATE_PAUSED",
    ],
    "LogLevel": ["LOG_LEVEL_TRACE", "LOG_LEVEL_DEBUG", "LOG_LEVEL_INFO", "LOG_LEVEL_WARN", "LOG_LEVEL_ERROR"],
}
KINDS = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_UINT64: "uint64",
}


def _kind(field: FieldDescriptor) -> str:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return f"map {_kind(field.message_type.fields_by_name['value'])}"
    named = field.message_type or field.enum_type
    kind = named.name if named is not None else KINDS[field.type]
    return f"repeated {kind}" if field.is_repeated else kind


def test_the_schema_has_every_field_and_number_of_its_specification() -> None:
    described = jobs_pb2.DESCRIPTOR
    assert described.package == "fetchbox.jobs"
    assert {
        name: {field.name: (field.number, _kind(field)) for field in message.fields}
        for name, message in described.message_types_by_name.items()
    } == MESSAGES
    assert {
        name: [(value.name, value.number) for value in kind.values]
        for name, kind in described.enum_types_by_name.items()
    } == {name: [(value, number) for number, value in enumerate(values)] for name, values in ENUMS.items()}


def test_what_is_generated_is_in_step_with_the_schema(tmp_path: Path) -> None:
    command = ["-m", "grpc_tools.protoc", "-I", "proto", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, *command, "proto/jobs.proto"], cwd=ROOT, check=True)
    for name in ("jobs_pb2.py", "jobs_pb2.pyi"):
        kept = ROOT / "src" / "slipstream" / "jobs" / name
        assert (tmp_path / name).read_text() == kept.read_text(), "run `make proto`"
    recipe = (ROOT / "Makefile").read_text().partition("\nproto:")[2].splitlines()[1]
    assert "grpc_tools.protoc -I proto --python_out=src/slipstream/jobs --pyi_out=src/slipstream/jobs" in recipe


def _task(**fields: object) -> DownloadTask:
    return DownloadTask(**{"job_id": "j", "resource_id": "r", "url": "https://example.invalid/", **fields})  # type: ignore[arg-type]


NEWER = b"\xc2\x3e\x05newer"
"""Field 1000, which no schema here knows."""


def test_what_a_newer_schema_has_put_in_survives_decoding_and_encoding() -> None:
    data = encode(_task()) + NEWER
    assert NEWER in encode_task(decode_task(data))
    letter = DeadLetterTask(task=decode_task(data), failure_code="DOWNLOAD_DNS")
    assert NEWER in encode(decode(DeadLetterTask, encode(letter)).task)
    within = encode(_task()) + b"\x42\x08" + NEWER  # in its attributes
    assert NEWER in encode(decode_task(within).attributes)


def test_names_of_headers_are_in_lower_case_on_both_sides_of_the_stream() -> None:
    task = _task(headers=[HttpHeader(name=" X-Shop", value="EU")])
    raw = encode(task)
    assert [(header.name, header.value) for header in decode_task(raw).headers] == [("x-shop", "EU")]
    assert [header.name for header in decode(DownloadTask, encode_task(task)).headers] == ["x-shop"]


@pytest.mark.parametrize("trace_id", ["", "0af7651916cd43dd", "0af7651916cd43dd8448eb211c80319c"])
def test_a_trace_id_is_16_or_32_hex_digits_or_nothing(trace_id: str) -> None:
    check_trace_id(trace_id)
    assert decode_task(encode_task(_task(trace_id=trace_id))).trace_id == trace_id


@pytest.mark.parametrize("trace_id", ["x", "0af7", "g" * 16, "0" * 17, "0" * 33, "0" * 16 + "\n", "é" * 16])
def test_any_other_trace_id_is_refused_of_a_producer_and_replaced_by_a_worker(trace_id: str) -> None:
    with pytest.raises(MalformedMessage, match="16 or 32 hex digits"):
        check_trace_id(trace_id)
    with pytest.raises(MalformedMessage, match="16 or 32 hex digits"):
        encode_task(_task(trace_id=trace_id))
    first, second = (decode_task(encode(_task(trace_id=trace_id))).trace_id for _ in range(2))
    assert first == second, "the logs of all deliveries belong together"
    check_trace_id(first)


@pytest.mark.parametrize("field", ["job_id", "resource_id", "url"])
def test_a_task_without_what_a_worker_needs_is_refused(field: str) -> None:
    with pytest.raises(MalformedMessage, match=field):
        encode_task(_task(**{field: ""}))
    with pytest.raises(MalformedMessage, match=field):
        decode_task(encode(_task(**{field: ""})))


@given(st.binary(max_size=200))
def test_whatever_bytes_come_are_a_message_or_malformed(data: bytes) -> None:
    for kind in (DownloadTask, JobStatus, JobLog, DeadLetterTask):
        try:
            message = decode(kind, data)
        except MalformedMessage:
            continue
        assert decode(kind, encode(message)) == message


def test_json_has_the_names_of_the_schema_on_one_line_and_reads_back() -> None:
    log = JobLog(job_id="j", level=LogLevel.LOG_LEVEL_WARN, message="two\nlines ü", fields={"a": "b"}, timestamp_ms=5)
    text = to_json(log)
    assert "\n" not in text
    assert '"job_id": "j"' in text
    assert '"LOG_LEVEL_WARN"' in text
    assert from_json(JobLog, text) == log


@given(st.builds(_task, tenant=st.text(), attempt=st.integers(0, 2**32 - 1)))
def test_json_of_any_task_reads_back(task: DownloadTask) -> None:
    task.attributes.tags["tenant"] = task.tenant
    task.attributes.extra = task.tenant.encode()
    task.headers.append(HttpHeader(name="a", value=task.tenant))
    assert from_json(DownloadTask, to_json(task)) == task


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[" * 100_000, "{", '{"nope": 1}', '{"job_id": 5}', '{"attempt": -1}', '{"job_id": "\\ud800"}', b"\xff"],
)
def test_json_that_is_no_message_is_refused(text: str | bytes) -> None:
    with pytest.raises(MalformedMessage, match="no DownloadTask"):
        from_json(DownloadTask, text)
