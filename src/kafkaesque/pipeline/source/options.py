"""The options of a read, named as in Spark's own Kafka connector and validated for both engines.

Unknown names are rejected. Spark ignores them, so `startingOffset` (without the s) would silently
read from the latest offset.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.client.wire.security import (
    InvalidSecurity,
    Security,
    UnsupportedSecurity,
    read_security,
)
from kafkaesque.model.address import Address, parse_address
from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.kafka.cluster import ClusterSettings
from kafkaesque.pipeline.kafka.read_settings import FETCH_SIZE_BYTES, ReadSettings
from kafkaesque.pipeline.rules.offsets import Partition, from_json

PREFIX: Final = "kafka."
SUBSCRIPTIONS: Final = ("subscribe", "subscribepattern", "assign")
STREAM_NAMES: Final = frozenset({"maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay"})
BATCH_NAMES: Final = frozenset({"endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"})
NAMES: Final = (
    frozenset(
        {
            "startingoffsets",
            "startingtimestamp",
            "startingoffsetsbytimestamp",
            "startingoffsetsbytimestampstrategy",
            "minpartitions",
            "failondataloss",
            "includeheaders",
            "kafkaesque.decoder",
            *SUBSCRIPTIONS,
        }
    )
    | STREAM_NAMES
    | BATCH_NAMES
)
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read begins or ends: a word, a time, or offsets. Exactly one is set."""

    word: str | None = None
    """earliest or latest"""
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[Partition, int] | None = None
    offsets: Mapping[Partition, int] | None = None
    latest_if_younger: bool = False
    """If all records are older than the time, use latest instead of failing."""


@dataclass(frozen=True, slots=True)
class KafkaReadOptions:
    """The validated options of a read; created by `read_options`."""

    read: ReadSettings
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[Partition, ...] = ()
    start: Bound = field(default_factory=lambda: Bound(word="latest"))
    end: Bound = field(default_factory=lambda: Bound(word="latest"))
    rows_max: int | None = None
    rows_min: int | None = None
    delay_ms_max: int = 15 * 60_000
    tasks_min: int | None = None


def read_options(given: Mapping[str, str], *, streaming: bool) -> KafkaReadOptions:
    """Parses the options. Raises InvalidOption that names the invalid one."""
    options = {name.lower(): str(value) for name, value in given.items()}
    properties = kafka_properties(options)
    _reject_unknown(options, streaming)
    topics, pattern, assigned = _subscription(options)
    read = ReadSettings(
        cluster=read_cluster(properties),
        with_headers=_boolean(options, "includeheaders", False),
        committed_only=properties.get("isolation.level", "read_uncommitted") == "read_committed",
        fail_on_data_loss=_boolean(options, "failondataloss", True),
        fetch_size_bytes=int(properties.get("max.partition.fetch.bytes", FETCH_SIZE_BYTES)),
        compiled={"compiled": True, "plain": False}.get(options.get("kafkaesque.decoder", "")),
    )
    chosen = KafkaReadOptions(
        read=read,
        topics=topics,
        pattern=pattern,
        assigned=assigned,
        start=_bound(options, "starting", "latest" if streaming else "earliest"),
        end=_bound(options, "ending", "latest"),
        rows_max=_positive(options, "maxoffsetspertrigger"),
        rows_min=_positive(options, "minoffsetspertrigger"),
        delay_ms_max=_duration_ms(options.get("maxtriggerdelay", "15m")),
        tasks_min=_positive(options, "minpartitions"),
    )
    _reject_contradictions(chosen, streaming)
    return chosen


def kafka_properties(options: Mapping[str, str]) -> dict[str, str]:
    """The options that start with `kafka.`, without the prefix: the client's own properties."""
    return {
        name.lower()[len(PREFIX) :]: str(value)
        for name, value in options.items()
        if name.lower().startswith(PREFIX)
    }


def read_cluster(properties: Mapping[str, str]) -> ClusterSettings:
    """Connection settings from the Kafka client's property names."""
    servers = properties.get("bootstrap.servers", "")
    if not servers.strip():
        raise InvalidOption("kafka.bootstrap.servers is missing", "set it to HOST:PORT[,...]")
    return ClusterSettings(
        bootstrap=tuple(_address(text) for text in servers.split(",")),
        security=read_kafka_security(properties),
        request_timeout_s=int(properties.get("request.timeout.ms", 30_000)) / 1000,
        deadline_s=int(properties.get("default.api.timeout.ms", 60_000)) / 1000,
    )


def read_kafka_security(properties: Mapping[str, str]) -> Security:
    """TLS and SASL of the Python engine. Raises InvalidOption."""
    try:
        return read_security(properties)
    except UnsupportedSecurity as error:
        fix = "engine=jvm has Kerberos, OAUTHBEARER and Java's key stores"
        raise InvalidOption(str(error), fix) from None
    except InvalidSecurity as error:
        raise InvalidOption(str(error)) from None


def _address(text: str) -> Address:
    try:
        return parse_address(text.rpartition("://")[2])
    except ValueError:
        raise InvalidOption(f"'{text.strip()}' is not a broker address", "use HOST:PORT") from None


def _reject_unknown(options: Mapping[str, str], streaming: bool) -> None:
    unknown = [name for name in options if name not in NAMES and not name.startswith(PREFIX)]
    if unknown:
        raise InvalidOption(f"there is no option '{unknown[0]}'")
    misplaced = sorted(set(options) & (BATCH_NAMES if streaming else STREAM_NAMES))
    if misplaced:
        kind = "stream" if streaming else "batch read"
        raise InvalidOption(f"a {kind} has no option '{misplaced[0]}'")


def _subscription(
    options: Mapping[str, str],
) -> tuple[tuple[str, ...], str | None, tuple[Partition, ...]]:
    named = [name for name in SUBSCRIPTIONS if name in options]
    if len(named) != 1:
        raise InvalidOption("name exactly one of subscribe, subscribePattern and assign")
    text = options[named[0]]
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not topics:
            raise InvalidOption("subscribe names no topic")
        return topics, None, ()
    if named[0] == "subscribepattern":
        return (), text, ()
    return (), None, _assignment(text)


def _assignment(text: str) -> tuple[Partition, ...]:
    try:
        shaped = json.loads(text)
        found = tuple((topic, int(index)) for topic in shaped for index in shaped[topic])
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidOption(f'assign is not JSON like {{"topic": [0, 1]}}: {text}') from error
    if not found:
        raise InvalidOption("assign names no partition")
    return found


def _bound(options: Mapping[str, str], side: str, default: str) -> Bound:
    """Precedence as in Spark: one time for all partitions, times by partition, then offsets."""
    strategy = options.get("startingoffsetsbytimestampstrategy", "error")
    if strategy not in ("error", "latest"):
        raise InvalidOption(
            f"startingOffsetsByTimestampStrategy must be error or latest, not '{strategy}'"
        )
    latest = side == "ending" or strategy == "latest"
    if text := options.get(f"{side}timestamp"):
        return Bound(timestamp_ms=_number(text, f"{side}Timestamp"), latest_if_younger=latest)
    name = f"{side}OffsetsByTimestamp"
    if text := options.get(name.lower()):
        return Bound(timestamps_ms=from_json(text, name), latest_if_younger=latest)
    text = options.get(f"{side}offsets", default).strip()
    if text.lower() in ("earliest", "latest"):
        if side == "ending" and text.lower() == "earliest":
            raise InvalidOption("endingOffsets cannot be earliest")
        return Bound(word=text.lower())
    return Bound(offsets=from_json(text, f"{side}Offsets"))


def _reject_contradictions(options: KafkaReadOptions, streaming: bool) -> None:
    if not streaming and options.start.word == "latest":
        raise InvalidOption("a batch read cannot start at latest: it would read nothing")
    if options.rows_min and options.rows_max and options.rows_min > options.rows_max:
        raise InvalidOption("minOffsetsPerTrigger is greater than maxOffsetsPerTrigger")


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidOption(f"{name} is not a number: {text}") from None


def _positive(options: Mapping[str, str], name: str) -> int | None:
    if name not in options:
        return None
    number = _number(options[name], name)
    if number <= 0:
        raise InvalidOption(f"{name} must be positive, not {number}")
    return number


def _boolean(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{name} must be true or false, not '{text}'")
    return text == "true"


def _duration_ms(text: str) -> int:
    """Parses `15m`, `30s` or `100ms`, as JavaUtils.timeStringAsMs."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(number) :] or "ms"
    if not number.isdigit() or unit not in _UNITS_MS:
        raise InvalidOption(f"'{text}' is not a duration", "for example 500ms, 30s, 15m")
    return int(number) * _UNITS_MS[unit]
