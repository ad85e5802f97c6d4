"""The group registry with a list for a log and a number for a clock, obeying `GroupEffects`."""

from __future__ import annotations

import itertools
from dataclasses import replace

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.registry import GroupRegistry
from kafkaesque.broker.groups.types import (
    AnswerValue,
    CommitRequest,
    GroupAnswer,
    GroupEffects,
    JoinAnswer,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    MemberHeartbeat,
    OffsetToCommit,
    Protocol,
    SyncAnswer,
    SyncRequest,
    TopicToCommit,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs
from kafkaesque.records.log_fields import LogRecord

WALL_MS_AT_START = 1_700_000_000_000

JOIN = JoinRequest(
    group_id="g",
    client_id="c",
    client_host="/127.0.0.1",
    session_timeout_ms=10_000,
    rebalance_timeout_ms=60_000,
    protocol_type="consumer",
    protocols=(Protocol("range", b"meta"),),
    api_version=3,
)
"""A dynamic member of an old client, which gets into the group with one request."""


class Driver:
    """Does at once what a broker does over time: append, replay, deliver."""

    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(initial_rebalance_delay_ms=0)
        self.log: list[LogRecord] = []
        self.seconds = 0.0
        self.answers: dict[int, AnswerValue] = {}
        self._tokens = itertools.count(1)
        self._ids = itertools.count(1)
        self.registry = self._load()

    @property
    def now(self) -> Moment:
        return Moment(self.seconds, TimestampMs(WALL_MS_AT_START + round(self.seconds * 1000)))

    def new_token(self) -> int:
        return next(self._tokens)

    def finish(self, effects: GroupEffects) -> GroupEffects:
        self.log += effects.records
        for record in effects.records:
            self.registry.replay(*record)
        for answer in effects.answers:
            self._deliver(answer)
        return effects

    def _deliver(self, answer: GroupAnswer) -> None:
        assert answer.token not in self.answers, f"token {answer.token} is answered twice"
        self.answers[answer.token] = answer.value

    def restart(self) -> None:
        self.registry = self._load()

    def _load(self) -> GroupRegistry:
        registry = GroupRegistry(self.config, lambda: str(next(self._ids)))
        for record in self.log:
            registry.replay(*record)
        registry.loaded(self.now)
        return registry

    def advance(self, seconds: float) -> list[tuple[float, GroupEffects]]:
        """Moves the clock and ticks at each deadline of the registry."""
        target = self.seconds + seconds
        seen = []
        while (deadline := self.registry.next_deadline()) is not None and deadline <= target:
            self.seconds = max(self.seconds, deadline)
            seen.append((self.seconds, self.finish(self.registry.tick(self.now))))
        self.seconds = target
        return seen

    # Short forms for unit tests; `g` is the group.

    def join(self, member_id: str = "", **changes: object) -> int:
        token = self.new_token()
        request = replace(JOIN, member_id=member_id, **changes)  # type: ignore[arg-type]
        self.finish(self.registry.join(request, token, self.now))
        return token

    def joined(self, token: int) -> JoinAnswer:
        answer = self.answers[token]
        assert isinstance(answer, JoinAnswer)
        return answer

    def synced(self, token: int) -> SyncAnswer:
        answer = self.answers[token]
        assert isinstance(answer, SyncAnswer)
        return answer

    def sync(self, member_id: str, generation_id: int, **parts: bytes) -> int:
        token = self.new_token()
        assignments = tuple((name.replace("_", "-"), part) for name, part in parts.items())
        request = SyncRequest(
            group_id="g", generation_id=generation_id, member_id=member_id, assignments=assignments
        )
        self.finish(self.registry.sync(request, token, self.now))
        return token

    def heartbeat(self, member_id: str, generation_id: int) -> AnswerValue:
        token = self.new_token()
        request = MemberHeartbeat(group_id="g", generation_id=generation_id, member_id=member_id)
        self.finish(self.registry.heartbeat(request, token, self.now))
        return self.answers[token]

    def leave(self, *member_ids: str) -> AnswerValue:
        token = self.new_token()
        members = tuple(LeavingMember(member_id) for member_id in member_ids)
        request = LeaveRequest(group_id="g", members=members)
        self.finish(self.registry.leave(request, token, self.now))
        return self.answers[token]

    def commit_request(self, topic: str, offset: int, **fields: object) -> CommitRequest:
        wanted = OffsetToCommit(PartitionIndex(0), Offset(offset))
        request = CommitRequest(
            group_id="g", topics=(TopicToCommit(topic, (wanted,)),), api_version=9
        )
        return replace(request, **fields)  # type: ignore[arg-type]

    def commit(self, topic: str, offset: int, **fields: object) -> AnswerValue:
        token = self.new_token()
        request = self.commit_request(topic, offset, **fields)
        self.finish(self.registry.commit_offsets(request, token, self.now))
        return self.answers[token]

    def stable_group(self, *client_ids: str, **changes: object) -> tuple[list[str], int]:
        """A Stable group with one member for each client; the first one leads."""
        tokens = [self.join(client_id=client_id, **changes) for client_id in client_ids]
        self.advance(self.config.initial_rebalance_delay_ms / 1000 * 3)
        answers = [self.joined(token) for token in tokens]
        members = [answer.member_id for answer in answers]
        generation_id = answers[0].generation_id
        for member_id in reversed(members):
            parts = {name.replace("-", "_"): name.encode() for name in members}
            self.sync(member_id, generation_id, **(parts if member_id == members[0] else {}))
        return members, generation_id
