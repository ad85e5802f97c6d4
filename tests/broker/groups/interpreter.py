"""The words of the scripts in tests/scripts/groups.

A request is numbered in order; its answer appears as `#n` whenever it is given, with the records
that go to the log before it. Times in answers of `advance` are seconds since the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from uuid import UUID

from tests.broker.groups import consumer_protocol
from tests.broker.groups.driver import WALL_MS_AT_START, Driver

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.log_format import (
    GroupKey,
    OffsetKey,
    decode_group,
    decode_key,
    decode_offset,
)
from kafkaesque.broker.groups.types import (
    CommitAnswer,
    CommitRequest,
    DeleteGroupsAnswer,
    DeleteOffsetsAnswer,
    DeleteOffsetsRequest,
    GroupAnswer,
    GroupEffects,
    HeartbeatAnswer,
    JoinAnswer,
    JoinRequest,
    LeaveAnswer,
    LeaveRequest,
    LeavingMember,
    MemberHeartbeat,
    OffsetToCommit,
    Protocol,
    SyncAnswer,
    SyncRequest,
    TopicResult,
    TopicToCommit,
    TopicToFetch,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import NO_TIMESTAMP, LeaderEpoch, Offset, PartitionIndex, TopicId
from kafkaesque.records.log_fields import LogRecord
from kafkaesque.testing.script import Command, ScriptError


def milliseconds(text: str) -> int:
    for suffix, factor in (
        ("ms", 1),
        ("s", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
    ):
        if text.endswith(suffix) and text[: -len(suffix)].lstrip("-").isdigit():
            return int(text[: -len(suffix)]) * factor
    raise ScriptError(f"{text} is no time such as 250ms, 3s, 5m, 2h or 7d")


class Interpreter:
    """Runs the commands of one script against one registry."""

    def __init__(self) -> None:
        self._driver = Driver()
        self._words: dict[str, Callable[[Command], Iterable[str]]] = {
            "config": self._config,
            "join": self._join,
            "sync": self._sync,
            "heartbeat": self._heartbeat,
            "leave": self._leave,
            "advance": self._advance,
            "cancel": self._cancel,
            "restart": self._restart,
            "commit": self._commit,
            "fetch": self._fetch,
            "delete-offsets": self._delete_offsets,
            "delete-groups": self._delete_groups,
            "delete-topics": self._delete_topics,
            "expire": self._expire,
            "describe": self._describe,
            "list": self._list,
        }

    def __call__(self, command: Command) -> Iterable[str]:
        if command.name not in self._words:
            raise ScriptError(f"line {command.line_number}: {command.name} is unknown")
        return self._words[command.name](command)

    def _config(self, command: Command) -> Iterator[str]:
        known = {
            "initial-delay": ("initial_rebalance_delay_ms", milliseconds),
            "retention": ("offsets_retention_ms", milliseconds),
            "max-size": ("group_size_max", int),
            "max-groups": ("groups_max", int),
            "max-metadata": ("offset_metadata_length_max", int),
            "max-record": ("group_record_bytes_max", int),
        }
        command.expect_options(*known)
        settings = {"initial_rebalance_delay_ms": 0}
        for name, text in command.options.items():
            field, read = known[name]
            settings[field] = read(text)
        self._driver.config = GroupConfig(**settings)
        self._driver.restart()
        yield "ok"

    def _join(self, command: Command) -> Iterator[str]:
        command.expect_options(
            "member",
            "instance",
            "session",
            "rebalance",
            "type",
            "protocols",
            "topics",
            "owned",
            "v",
        )
        group_id, client_id = command.arguments
        token = self._driver.new_token()
        request = JoinRequest(
            group_id=group_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            member_id=command.option("member", ""),
            group_instance_id=command.options.get("instance"),
            session_timeout_ms=milliseconds(command.option("session", "10s")),
            rebalance_timeout_ms=milliseconds(command.option("rebalance", "60s")),
            protocol_type=command.option("type", "consumer"),
            protocols=_protocols(command),
            api_version=int(command.option("v", "9")),
        )
        return self._finish(self._driver.registry.join(request, token, self._driver.now), token)

    def _sync(self, command: Command) -> Iterator[str]:
        command.expect_options("gen", "instance", "type", "name", "assign")
        group_id, member_id = command.arguments
        token = self._driver.new_token()
        pairs = [part.split(":") for part in command.option("assign", "").split(",") if part]
        request = SyncRequest(
            group_id=group_id,
            member_id=member_id,
            generation_id=int(command.options["gen"]),
            group_instance_id=command.options.get("instance"),
            protocol_type=command.options.get("type"),
            protocol_name=command.options.get("name"),
            assignments=tuple((name, part.encode()) for name, part in pairs),
        )
        return self._finish(self._driver.registry.sync(request, token, self._driver.now), token)

    def _heartbeat(self, command: Command) -> Iterator[str]:
        command.expect_options("gen", "instance")
        group_id, member_id = command.arguments
        token = self._driver.new_token()
        request = MemberHeartbeat(
            group_id=group_id,
            member_id=member_id,
            generation_id=int(command.options["gen"]),
            group_instance_id=command.options.get("instance"),
        )
        return self._finish(
            self._driver.registry.heartbeat(request, token, self._driver.now), token
        )

    def _leave(self, command: Command) -> Iterator[str]:
        """Members by id, and static ones with `instance=NAME`, alone or after an id."""
        command.expect_options("instance")
        group_id, *member_ids = command.arguments
        instance_id = command.options.get("instance")
        members = tuple(LeavingMember(member_id, instance_id) for member_id in member_ids or [""])
        token = self._driver.new_token()
        request = LeaveRequest(group_id=group_id, members=members)
        return self._finish(self._driver.registry.leave(request, token, self._driver.now), token)

    def _advance(self, command: Command) -> Iterator[str]:
        (text,) = command.arguments
        for seconds, effects in self._driver.advance(milliseconds(text) / 1000):
            for line in _show(effects):
                yield f"@{seconds:g}s {line}"

    def _cancel(self, command: Command) -> Iterator[str]:
        (number,) = command.arguments
        self._driver.registry.cancel(int(number.removeprefix("#")))
        yield "ok"

    def _restart(self, _: Command) -> Iterator[str]:
        self._driver.restart()
        yield "ok"

    def _commit(self, command: Command) -> Iterator[str]:
        """`topic/partition@offset`, once or more."""
        command.expect_options("member", "gen", "instance", "metadata", "epoch", "retention", "v")
        group_id, *targets = command.arguments
        topics = tuple(_to_commit(target, command) for target in targets)
        token = self._driver.new_token()
        request = CommitRequest(
            group_id=group_id,
            member_id=command.option("member", ""),
            generation_id=int(command.option("gen", "-1")),
            group_instance_id=command.options.get("instance"),
            retention_ms=milliseconds(command.option("retention", "-1ms")),
            topics=topics,
            api_version=int(command.option("v", "9")),
        )
        effects = self._driver.registry.commit_offsets(request, token, self._driver.now)
        return self._finish(effects, token)

    def _fetch(self, command: Command) -> Iterator[str]:
        group_id, *targets = command.arguments
        topics = tuple(_to_fetch(target) for target in targets) if targets else None
        for topic in self._driver.registry.fetch_offsets(group_id, topics):
            for found in topic.partitions:
                extra = f" metadata={found.metadata}" if found.metadata else ""
                extra += f" epoch={found.leader_epoch}" if found.leader_epoch >= 0 else ""
                yield f"{topic.topic}/{found.partition}@{found.offset}{extra}"

    def _delete_offsets(self, command: Command) -> Iterator[str]:
        group_id, *targets = command.arguments
        token = self._driver.new_token()
        request = DeleteOffsetsRequest(group_id=group_id, topics=tuple(map(_to_fetch, targets)))
        effects = self._driver.registry.delete_offsets(request, token, self._driver.now)
        return self._finish(effects, token)

    def _delete_groups(self, command: Command) -> Iterator[str]:
        token = self._driver.new_token()
        now = self._driver.now
        effects = self._driver.registry.delete_groups(command.arguments, token, now)
        return self._finish(effects, token)

    def _delete_topics(self, command: Command) -> Iterator[str]:
        return self._finish(self._driver.registry.topics_deleted(command.arguments))

    def _expire(self, _: Command) -> Iterator[str]:
        return self._finish(self._driver.registry.expire_offsets(self._driver.now.wall_ms))

    def _describe(self, command: Command) -> Iterator[str]:
        command.expect_options("v")
        version = int(command.option("v", "6"))
        for group in self._driver.registry.describe_groups(command.arguments, version):
            error = "" if group.error is ErrorCode.NONE else f" {group.error.name}"
            protocol = (
                f" {group.protocol_type}:{group.protocol_name}" if group.protocol_type else ""
            )
            yield f"{group.group_id} {group.state}{protocol}{error}"
            for member in group.members:
                instance = (
                    f" instance={member.group_instance_id}" if member.group_instance_id else ""
                )
                metadata = consumer_protocol.show(member.metadata)
                part = member.assignment.decode()
                yield f"  {member.member_id}{instance} metadata=[{metadata}] assignment=[{part}]"

    def _list(self, command: Command) -> Iterator[str]:
        command.expect_options("states", "types")
        states = command.option("states", "").split(",") if "states" in command.options else ()
        types = command.option("types", "").split(",") if "types" in command.options else ()
        for group in self._driver.registry.list_groups(states, types):
            yield f"{group.group_id} {group.state} type={group.group_type} protocol={group.protocol_type}"

    def _finish(self, effects: GroupEffects, token: int | None = None) -> Iterator[str]:
        self._driver.finish(effects)
        yield from _show(effects)
        if token is not None and token not in self._driver.answers:
            yield f"#{token} waits"


def _protocols(command: Command) -> tuple[Protocol, ...]:
    pairs = [part.partition(":") for part in command.option("protocols", "range").split(",")]
    metadata = None
    if "topics" in command.options:
        owned: dict[str, list[int]] = {}
        for target in filter(None, command.option("owned", "").split(",")):
            topic, _, partition = target.partition("/")
            owned.setdefault(topic, []).append(int(partition))
        metadata = consumer_protocol.subscription(command.options["topics"].split(","), owned)
    return tuple(
        Protocol(name, text.encode() if metadata is None else metadata) for name, _, text in pairs
    )


def _to_commit(target: str, command: Command) -> TopicToCommit:
    place, _, offset = target.partition("@")
    topic, _, partition = place.partition("/")
    wanted = OffsetToCommit(
        PartitionIndex(int(partition)),
        Offset(int(offset)),
        LeaderEpoch(int(command.option("epoch", "-1"))),
        command.options.get("metadata"),
    )
    return TopicToCommit(topic, (wanted,), TopicId(UUID(int=0)))


def _to_fetch(target: str) -> TopicToFetch:
    topic, _, partition = target.partition("/")
    return TopicToFetch(topic, (PartitionIndex(int(partition)),))


def _show(effects: GroupEffects) -> Iterator[str]:
    yield from map(_show_record, effects.records)
    yield from map(_show_answer, effects.answers)


def _show_record(record: LogRecord) -> str:
    key = decode_key(record.key)
    if isinstance(key, OffsetKey):
        place = f"log offset {key.group_id} {key.topic}/{key.partition}"
        if record.value is None:
            return f"{place} gone"
        value = decode_offset(record.value)
        text = f"{place}@{value.offset}"
        if value.expire_timestamp_ms != NO_TIMESTAMP:
            text += f" until {(value.expire_timestamp_ms - WALL_MS_AT_START) / 1000:g}s"
        return text
    assert isinstance(key, GroupKey)
    if record.value is None:
        return f"log group {key.group_id} gone"
    group = decode_group(record.value)
    members = " ".join(f"{m.member_id}[{m.assignment.decode()}]" for m in group.members)
    leader = f" leader={group.leader_id}" if group.leader_id else ""
    protocol = f" protocol={group.protocol_name}" if group.protocol_name else ""
    text = f"log group {key.group_id} gen={group.generation_id}{protocol}{leader} {members}"
    return text.rstrip()


def _show_answer(answer: GroupAnswer) -> str:
    return f"#{answer.token} {_show_value(answer)}"


def _show_value(answer: GroupAnswer) -> str:
    match answer.value:
        case JoinAnswer() as joined if joined.error is not ErrorCode.NONE:
            return f"join {joined.error.name} {joined.member_id}".rstrip()
        case JoinAnswer() as joined:
            skip = " skip-assignment" if joined.skip_assignment else ""
            members = " ".join(_show_joined(m) for m in joined.members)
            return (
                f"join {joined.member_id} gen={joined.generation_id} "
                f"protocol={joined.protocol_name} leader={joined.leader}{skip} {members}"
            ).rstrip()
        case SyncAnswer() as synced if synced.error is not ErrorCode.NONE:
            return f"sync {synced.error.name}"
        case SyncAnswer() as synced:
            return f"sync protocol={synced.protocol_name} [{synced.assignment.decode()}]"
        case HeartbeatAnswer() as heartbeat:
            return f"heartbeat {heartbeat.error.name}"
        case LeaveAnswer() as left if left.error is not ErrorCode.NONE:
            return f"leave {left.error.name}"
        case LeaveAnswer() as left:
            names = (f"{m.member_id or m.group_instance_id}:{m.error.name}" for m in left.members)
            return f"leave {' '.join(names)}"
        case CommitAnswer() as committed:
            return f"commit {_show_topics(committed.topics)}"
        case DeleteOffsetsAnswer() as deleted if deleted.error is not ErrorCode.NONE:
            return f"delete-offsets {deleted.error.name}"
        case DeleteOffsetsAnswer() as deleted:
            return f"delete-offsets {_show_topics(deleted.topics)}"
        case DeleteGroupsAnswer() as gone:
            return f"delete-groups {' '.join(f'{g.group_id}:{g.error.name}' for g in gone.groups)}"


def _show_joined(member: object) -> str:
    member_id, instance_id, metadata = member  # type: ignore[misc]
    name = f"({instance_id})" if instance_id else ""
    return f"{member_id}{name}[{consumer_protocol.show(metadata)}]"


def _show_topics(topics: tuple[TopicResult, ...]) -> str:
    return " ".join(
        f"{topic.topic}/{result.partition}:{result.error.name}"
        for topic in topics
        for result in topic.partitions
    )
