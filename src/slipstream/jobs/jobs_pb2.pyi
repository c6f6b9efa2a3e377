from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNKNOWN: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_IN_PROGRESS: _ClassVar[JobState]
    JOB_STATE_PARTIAL: _ClassVar[JobState]
    JOB_STATE_COMPLETED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
    JOB_STATE_PAUSED: _ClassVar[JobState]

class LogLevel(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOG_LEVEL_TRACE: _ClassVar[LogLevel]
    LOG_LEVEL_DEBUG: _ClassVar[LogLevel]
    LOG_LEVEL_INFO: _ClassVar[LogLevel]
    LOG_LEVEL_WARN: _ClassVar[LogLevel]
    LOG_LEVEL_ERROR: _ClassVar[LogLevel]
JOB_STATE_UNKNOWN: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_IN_PROGRESS: JobState
JOB_STATE_PARTIAL: JobState
JOB_STATE_COMPLETED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState
JOB_STATE_PAUSED: JobState
LOG_LEVEL_TRACE: LogLevel
LOG_LEVEL_DEBUG: LogLevel
LOG_LEVEL_INFO: LogLevel
LOG_LEVEL_WARN: LogLevel
LOG_LEVEL_ERROR: LogLevel

class HttpHeader(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class StorageHint(_message.Message):
    __slots__ = ("bucket", "key_prefix", "metadata")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    bucket: str
    key_prefix: str
    metadata: _containers.ScalarMap[str, str]
    def __init__(self, bucket: _Optional[str] = ..., key_prefix: _Optional[str] = ..., metadata: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProxyHint(_message.Message):
    __slots__ = ("primary_pool", "fallbacks")
    PRIMARY_POOL_FIELD_NUMBER: _ClassVar[int]
    FALLBACKS_FIELD_NUMBER: _ClassVar[int]
    primary_pool: str
    fallbacks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, primary_pool: _Optional[str] = ..., fallbacks: _Optional[_Iterable[str]] = ...) -> None: ...

class TaskAttributes(_message.Message):
    __slots__ = ("tags", "checksum_hint", "mime_hint", "extra")
    class TagsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TAGS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_HINT_FIELD_NUMBER: _ClassVar[int]
    MIME_HINT_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.ScalarMap[str, str]
    checksum_hint: str
    mime_hint: str
    extra: bytes
    def __init__(self, tags: _Optional[_Mapping[str, str]] = ..., checksum_hint: _Optional[str] = ..., mime_hint: _Optional[str] = ..., extra: _Optional[bytes] = ...) -> None: ...

class DownloadTask(_message.Message):
    __slots__ = ("job_id", "job_type", "resource_id", "url", "headers", "proxy_hint", "storage_hint", "attributes", "manifest_key", "attempt", "tenant", "trace_id")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    PROXY_HINT_FIELD_NUMBER: _ClassVar[int]
    STORAGE_HINT_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_type: str
    resource_id: str
    url: str
    headers: _containers.RepeatedCompositeFieldContainer[HttpHeader]
    proxy_hint: ProxyHint
    storage_hint: StorageHint
    attributes: TaskAttributes
    manifest_key: str
    attempt: int
    tenant: str
    trace_id: str
    def __init__(self, job_id: _Optional[str] = ..., job_type: _Optional[str] = ..., resource_id: _Optional[str] = ..., url: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[HttpHeader, _Mapping]]] = ..., proxy_hint: _Optional[_Union[ProxyHint, _Mapping]] = ..., storage_hint: _Optional[_Union[StorageHint, _Mapping]] = ..., attributes: _Optional[_Union[TaskAttributes, _Mapping]] = ..., manifest_key: _Optional[str] = ..., attempt: _Optional[int] = ..., tenant: _Optional[str] = ..., trace_id: _Optional[str] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("job_id", "job_type", "state", "resources_total", "resources_completed", "resources_failed", "manifest_key", "tenant", "last_error_code", "last_error_message", "log_offset", "timestamp_ms")
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_TYPE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_COMPLETED_FIELD_NUMBER: _ClassVar[int]
    RESOURCES_FAILED_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_KEY_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    job_type: str
    state: JobState
    resources_total: int
    resources_completed: int
    resources_failed: int
    manifest_key: str
    tenant: str
    last_error_code: str
    last_error_message: str
    log_offset: int
    timestamp_ms: int
    def __init__(self, job_id: _Optional[str] = ..., job_type: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., resources_total: _Optional[int] = ..., resources_completed: _Optional[int] = ..., resources_failed: _Optional[int] = ..., manifest_key: _Optional[str] = ..., tenant: _Optional[str] = ..., last_error_code: _Optional[str] = ..., last_error_message: _Optional[str] = ..., log_offset: _Optional[int] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class JobLog(_message.Message):
    __slots__ = ("job_id", "resource_id", "level", "message", "fields", "timestamp_ms", "trace_id")
    class FieldsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_ID_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    TRACE_ID_FIELD_NUMBER: _ClassVar[int]
    job_id: str
    resource_id: str
    level: LogLevel
    message: str
    fields: _containers.ScalarMap[str, str]
    timestamp_ms: int
    trace_id: str
    def __init__(self, job_id: _Optional[str] = ..., resource_id: _Optional[str] = ..., level: _Optional[_Union[LogLevel, str]] = ..., message: _Optional[str] = ..., fields: _Optional[_Mapping[str, str]] = ..., timestamp_ms: _Optional[int] = ..., trace_id: _Optional[str] = ...) -> None: ...

class DeadLetterTask(_message.Message):
    __slots__ = ("task", "failure_code", "failure_message", "attempts", "failed_at_ms")
    TASK_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CODE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    task: DownloadTask
    failure_code: str
    failure_message: str
    attempts: int
    failed_at_ms: int
    def __init__(self, task: _Optional[_Union[DownloadTask, _Mapping]] = ..., failure_code: _Optional[str] = ..., failure_message: _Optional[str] = ..., attempts: _Optional[int] = ..., failed_at_ms: _Optional[int] = ...) -> None: ...
