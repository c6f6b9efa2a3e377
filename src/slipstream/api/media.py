"""The media types `/v2` speaks."""

JSON = "application/json"
NDJSON = "application/x-ndjson"
MSGPACK = "application/msgpack"
ARROW = "application/vnd.apache.arrow.stream"
EVENTS = "text/event-stream"
