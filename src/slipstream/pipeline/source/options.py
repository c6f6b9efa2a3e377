"""What can be said with `.option(…)`: each once, with its meaning, and checked before anything is done with it.

The names are Kafka's where Kafka has the thing. As everywhere in Spark, case does not matter.
"""

from __future__ import annotations

import datetime as dt
import difflib
import os
import re
from collections.abc import Iterator, Mapping
from enum import Flag, auto
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from slipstream.pipeline.source.errors import InvalidOption

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:8080"
EARLIEST, LATEST = -2, -1
"""In the JSON of offsets, as with Kafka."""


class Use(Flag):
    """Where an option means something."""

    BATCH = auto()
    STREAM = auto()
    SINK = auto()
    READ = BATCH | STREAM
    ANY = READ | SINK


class OptionInfo(msgspec.Struct, frozen=True):
    name: str
    use: Use
    default: str
    text: str


OPTIONS = [
    OptionInfo("url", Use.ANY, "`SLIPSTREAM_URL`, or `http://127.0.0.1:8080`", "The server."),
    OptionInfo("bus", Use.READ, "slipstream", "`nats`: read streams of NATS JetStream instead."),
    OptionInfo("natsUrl", Use.READ, "`NATS_URL`", "With `bus=nats`: one server, or several with commas between them."),
    OptionInfo(
        "natsCredsPath", Use.READ, "`NATS_CREDS_PATH`", "With `bus=nats`: a credentials file, on every machine."
    ),
    OptionInfo("natsCaPath", Use.READ, "`NATS_CA`", "With `bus=nats`: a file of CA certificates, on every machine."),
    OptionInfo("natsCertPath", Use.READ, "`NATS_CERT`", "With `bus=nats`: a client certificate, on every machine."),
    OptionInfo("natsKeyPath", Use.READ, "`NATS_KEY`", "With `bus=nats`: the key of the certificate, on every machine."),
    OptionInfo(
        "busPrefix", Use.READ, "`BUS_PREFIX`", "With `bus=nats`: what is put before every topic, such as `dev.`"
    ),
    OptionInfo("subscribe", Use.READ, "", "Topics, with commas between them."),
    OptionInfo(
        "subscribePattern", Use.READ, "", "A regular expression for whole names; topics that come later are read too."
    ),
    OptionInfo("assign", Use.READ, "", '`{"orders": [0, 1]}`: only these partitions.'),
    OptionInfo(
        "startingOffsets",
        Use.READ,
        "batch: earliest, stream: latest",
        '`earliest`, `latest`, or `{"orders": {"0": 23, "1": -2}}` with -2 for earliest and -1 for latest; '
        '`{"orders": 23}` is for all partitions, as offsets count per topic.',
    ),
    OptionInfo("endingOffsets", Use.BATCH, "latest", "`latest` or JSON, likewise: before this offset."),
    OptionInfo(
        "startingTimestamp", Use.READ, "", "Stored at this time or later: milliseconds since 1970, or RFC 3339."
    ),
    OptionInfo("endingTimestamp", Use.BATCH, "", "Stored before this time."),
    OptionInfo("startingOffsetsByTimestamp", Use.READ, "", '`{"orders": {"0": 1767225600000}}`, or one for the topic.'),
    OptionInfo("endingOffsetsByTimestamp", Use.BATCH, "", "Likewise."),
    OptionInfo("maxOffsetsPerTrigger", Use.STREAM, "", "Messages in one micro-batch, over all topics, at most."),
    OptionInfo("minOffsetsPerTrigger", Use.STREAM, "", "No micro-batch with fewer, unless `maxTriggerDelay` is over."),
    OptionInfo("maxTriggerDelay", Use.STREAM, "15m", "How long `minOffsetsPerTrigger` may hold messages back."),
    OptionInfo("minPartitions", Use.READ, "", "Tasks to read with, at least. By default one for 250,000 messages."),
    OptionInfo("failOnDataLoss", Use.READ, "true", "`false`: where messages are gone, warn and go on."),
    OptionInfo("includeHeaders", Use.READ, "false", "A column `headers` with the attributes."),
    OptionInfo(
        "includeEnvelope",
        Use.READ,
        "false",
        "Columns `envelope` and `routing`; most messages have neither, and all are slower for it.",
    ),
    OptionInfo(
        "content", Use.READ, "messages", "`ranges`: rows that say what to read, for who reads in tasks of their own."
    ),
    OptionInfo("topic", Use.SINK, "", "Where rows go, unless a column `topic` says it."),
    OptionInfo("checkpointLocation", Use.SINK, "", "Spark's own, for streams."),
]

_BY_NAME = {info.name.lower(): info for info in OPTIONS}

_OF_OTHERS = {
    "kafka.bootstrap.servers": "say where the server is with url",
    "path": "say what to read with subscribe, subscribePattern or assign, and what to write with topic",
    "group.id": "nothing here belongs to a group: progress is in Spark's checkpoint",
    "kafka.group.id": "nothing here belongs to a group: progress is in Spark's checkpoint",
}

Positions = dict[str, dict[int, int] | int]
"""By topic: by partition, or one for all."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Decoded."""

    url: str
    bus: Literal["slipstream", "nats"] = "slipstream"
    nats: dict[str, str] = {}
    """Settings of the bus: where it is, as it was given or as the environment of the driver says, so that tasks on
    other machines find the same. Theirs has the rest."""
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assigned: dict[str, tuple[int, ...]] | None = None
    starting: Positions | Literal["earliest", "latest"] = "earliest"
    ending: Positions | Literal["latest"] = "latest"
    starting_ms: Positions | int | None = None
    ending_ms: Positions | int | None = None
    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = 15 * 60_000
    tasks_min: int = 1
    fail_on_data_loss: bool = True
    headers: bool = False
    envelope: bool = False
    content: Literal["messages", "ranges"] = "messages"
    topic: str | None = None

    def __repr__(self) -> str:
        """Without addresses, which may carry passwords: it ends up in plans and logs."""
        return f"Options(bus={self.bus!r}, topics={self.topics!r}, pattern={self.pattern!r}, topic={self.topic!r})"

    def wants(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in (self.assigned if self.assigned is not None else self.topics or ())

    def wants_partition(self, topic: str, partition: int) -> bool:
        return self.assigned is None or partition in self.assigned[topic]

    @property
    def named(self) -> list[str] | None:
        """The topics that are named; None where a pattern names them."""
        if self.pattern is not None:
            return None
        return list(self.assigned if self.assigned is not None else self.topics or ())


def connection_options(given: Mapping[str, str]) -> Options:
    """Only what is needed to open a log: which topics is said later."""
    return _Parser(given, Use.READ).connection()


def read_options(given: Mapping[str, str], use: Use) -> Options:
    return _Parser(given, use).reading()


def write_options(given: Mapping[str, str]) -> Options:
    return _Parser(given, Use.SINK).writing()


_FILES_OF_NATS = {
    "natsCredsPath": "nats_creds_path",
    "natsCaPath": "nats_ca",
    "natsCertPath": "nats_cert",
    "natsKeyPath": "nats_key",
}
_OF_NATS = {"natsUrl": "nats_url", **_FILES_OF_NATS, "busPrefix": "prefix"}
"""Option → setting of the bus."""


def nats_options(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Where NATS is: what is given of it, and the rest as the environment of this process says, for those who have
    another. Credentials, certificates and keys are named by their paths; a seed is a secret, and is not passed on."""
    from slipstream.bus.errors import InvalidArgument  # noqa: PLC0415 - here and below: for who reads NATS
    from slipstream.bus.settings import load_settings  # noqa: PLC0415

    try:
        settings = load_settings({"driver": "nats"} | {_OF_NATS[name]: value for name, value in (given or {}).items()})
    except InvalidArgument as error:
        raise InvalidOption(str(error)) from error
    found = {"natsUrl": settings.nats_url, "busPrefix": settings.prefix}
    for name, setting in _FILES_OF_NATS.items():
        if path := getattr(settings, setting):
            found[name] = str(Path(path).absolute())  # tasks do not run in the directory of the driver
    return found


class _Parser:
    def __init__(self, given: Mapping[str, str], use: Use) -> None:
        self._given: dict[str, str] = {}
        for name, value in given.items():
            info = _BY_NAME.get(name.lower())
            if info is None:
                raise InvalidOption(_unknown(name, use))
            if not info.use & use:
                raise InvalidOption(f"option {info.name} is not for {_PLACES[use]}: leave it out")
            self._given[info.name] = str(value)
        self._use = use

    def connection(self) -> Options:
        return Options(**self._connection())

    def _connection(self) -> dict[str, Any]:
        bus = self._word("bus", "slipstream", ("slipstream", "nats"))
        given = {name: self._given[name] for name in _OF_NATS if name in self._given}
        if bus == "slipstream" and given:
            raise InvalidOption(f"option {next(iter(given))} needs bus=nats")
        if bus == "nats" and "url" in self._given:
            raise InvalidOption("option url is for a Slipstream server: with bus=nats say natsUrl")
        return {
            "bus": bus,
            "nats": {_OF_NATS[name]: value for name, value in nats_options(given).items()} if bus == "nats" else {},
            "url": self._given.get("url") or os.environ.get("SLIPSTREAM_URL") or DEFAULT_URL,
            "fail_on_data_loss": self._flag("failOnDataLoss", default=True),
        }

    def reading(self) -> Options:
        streaming = bool(self._use & Use.STREAM)
        options = Options(
            **self._connection(),
            **self._selection(),
            starting=self._positions("startingOffsets", ("earliest", "latest"), "latest" if streaming else "earliest"),
            ending=self._positions("endingOffsets", ("latest",), "latest"),
            starting_ms=self._times("startingTimestamp", "startingOffsetsByTimestamp"),
            ending_ms=self._times("endingTimestamp", "endingOffsetsByTimestamp"),
            rows_max=self._number("maxOffsetsPerTrigger"),
            rows_min=self._number("minOffsetsPerTrigger"),
            delay_ms_max=self._duration_ms("maxTriggerDelay", 15 * 60_000),
            tasks_min=self._number("minPartitions") or 1,
            headers=self._flag("includeHeaders", default=False),
            envelope=self._flag("includeEnvelope", default=False),
            content=self._word("content", "messages", ("messages", "ranges")),
        )
        if options.rows_max is not None and options.rows_min is not None and options.rows_min > options.rows_max:
            raise InvalidOption(
                f"minOffsetsPerTrigger={options.rows_min} is more than maxOffsetsPerTrigger={options.rows_max}: "
                "no micro-batch could be both"
            )
        return options

    def writing(self) -> Options:
        if self._given.get("topic") == "":
            raise self._refused("topic", "a name is wanted")
        return Options(**self._connection(), topic=self._given.get("topic"))

    def _selection(self) -> dict[str, Any]:
        said = [name for name in ("subscribe", "subscribePattern", "assign") if name in self._given]
        if len(said) != 1:
            what = "none of them is" if not said else f"{' and '.join(said)} are"
            raise InvalidOption(f"say what to read with one of subscribe, subscribePattern and assign: {what} given")
        match said[0]:
            case "subscribe":
                topics = tuple(name.strip() for name in self._given["subscribe"].split(",") if name.strip())
                if not topics:
                    raise InvalidOption("subscribe names no topic: say them with commas between them")
                return {"topics": tuple(dict.fromkeys(topics))}
            case "subscribePattern":
                try:
                    re.compile(self._given["subscribePattern"])
                except re.error as error:
                    raise self._refused("subscribePattern", f"no regular expression ({error})") from error
                return {"pattern": self._given["subscribePattern"]}
            case _:
                found = self._json("assign", dict[str, list[int]], 'JSON such as {"orders": [0, 1]}')
                if (
                    not found
                    or not all(found.values())
                    or any(number < 0 for each in found.values() for number in each)
                ):
                    raise self._refused("assign", 'it must name partitions, such as {"orders": [0, 1]}')
                return {"assigned": {topic: tuple(sorted(set(each))) for topic, each in found.items()}}

    def _positions(self, name: str, words: tuple[str, ...], default: str) -> Any:
        text = self._given.get(name, default).strip()
        if text.lower() in words:
            return text.lower()
        wanted = f'{", ".join(words)} or JSON such as {{"orders": {{"0": 23}}}}'
        found = self._json(name, Positions, wanted)
        lowest = EARLIEST if "earliest" in words else LATEST
        for topic, positions in found.items():
            for offset in positions.values() if isinstance(positions, dict) else [positions]:
                if offset < lowest:
                    raise self._refused(name, f"{topic} has {offset}, which is no offset")
        return found

    def _times(self, name: str, by_partition: str) -> Positions | int | None:
        if name in self._given and by_partition in self._given:
            raise InvalidOption(f"{name} and {by_partition} are both given: say one of them")
        if name in self._given:
            return self._time_ms(name, self._given[name].strip())
        if by_partition in self._given:
            return self._json(by_partition, Positions, 'JSON such as {"orders": {"0": 1767225600000}}')
        return None

    def _time_ms(self, name: str, text: str) -> int:
        if text.isdecimal():
            return int(text)
        try:
            time = dt.datetime.fromisoformat(text)
        except ValueError as error:
            raise self._refused(name, "milliseconds since 1970 or RFC 3339 are wanted") from error
        if time.tzinfo is None:
            raise self._refused(name, "a time zone is missing, such as Z")
        return round(time.timestamp() * 1000)

    def _number(self, name: str) -> int | None:
        text = self._given.get(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) < 1:
            raise self._refused(name, "a whole number from 1 on is wanted")
        return int(text)

    def _flag(self, name: str, *, default: bool) -> bool:
        return bool(self._word(name, str(default).lower(), ("true", "false")) == "true")

    def _word(self, name: str, default: str, words: tuple[str, ...]) -> Any:
        text = self._given.get(name, default).strip().lower()
        if text not in words:
            raise self._refused(name, f"{' or '.join(words)} is wanted")
        return text

    def _duration_ms(self, name: str, default_ms: int) -> int:
        text = self._given.get(name)
        if text is None:
            return default_ms
        found = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", text.strip().lower())
        if found is None:
            raise self._refused(name, "a duration such as 500ms, 30s, 15m or 1h is wanted")
        return int(found[1]) * {"ms": 1, None: 1, "s": 1000, "h": 3_600_000, "d": 86_400_000}.get(found[2], 60_000)

    def _json(self, name: str, kind: type[T], wanted: str) -> T:
        try:
            return msgspec.json.decode(self._given[name], type=kind, strict=False)
        except msgspec.MsgspecError as error:
            raise self._refused(name, f"{wanted} is wanted") from error

    def _refused(self, name: str, why: str) -> InvalidOption:
        return InvalidOption(f"{name}={self._given[name]!r:.120}: {why}")


_PLACES = {Use.BATCH: "batch reads", Use.STREAM: "streams", Use.SINK: "writing", Use.READ: "reading"}


def _unknown(name: str, use: Use) -> str:
    if name.lower() in _OF_OTHERS:
        return f"there is no option {name}: {_OF_OTHERS[name.lower()]}"
    names = {info.name.lower(): info.name for info in OPTIONS if info.use & use}
    near = difflib.get_close_matches(name.lower(), names, 1)
    if near:
        return f"there is no option {name}: is {names[near[0]]} meant?"
    return f"there is no option {name}; there are {', '.join(sorted(names.values()))}"


def described() -> Iterator[OptionInfo]:
    """For the documentation."""
    yield from OPTIONS
