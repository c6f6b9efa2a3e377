"""A message of a stream, made again of the columns it was decoded into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

MessageT = TypeVar("MessageT", bound=Message)


def message_of(kind: type[MessageT], row: Mapping[str, Any]) -> MessageT:
    """What is null is not set. Fields that the schema does not know are in no column, and are lost.

    Example:
        task = message_of(DownloadTask, {"job_id": "j1", "resource_id": "r1", "url": "https://…"})
    """
    message = kind()
    _fill(message, row)
    return message


def _fill(message: Message, row: Mapping[str, Any]) -> None:
    for field in message.DESCRIPTOR.fields:
        value = row.get(field.name)
        if value is None:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name).update(dict(value))
        elif field.is_repeated:
            _fill_repeated(getattr(message, field.name), value, of_messages=field.message_type is not None)
        elif field.message_type is not None:
            inner = getattr(message, field.name)
            inner.SetInParent()
            _fill(inner, value)
        else:
            setattr(message, field.name, value)


def _fill_repeated(there: Any, values: list[Any], *, of_messages: bool) -> None:
    if not of_messages:
        there.extend(values)
        return
    for value in values:
        _fill(there.add(), value)
