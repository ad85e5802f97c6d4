"""One call into the rules: its time, and the effects that it collects.

`Waiting` outlives the calls: it has the tokens of requests that wait for an answer.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.members import Member
from kafkaesque.broker.groups.timers import Timers
from kafkaesque.broker.groups.types import NOTHING, AnswerValue, GroupAnswer, GroupEffects
from kafkaesque.model.clock import Moment
from kafkaesque.records.log_fields import LogRecord


class TimerKind(Enum):
    SESSION = "a member, or the owner of a pending id, must send something"
    JOIN = "the join phase must end"
    SYNC = "every member must have sent SyncGroup"


class TimerKey(NamedTuple):
    group_id: str
    kind: TimerKind
    member_id: str = ""


GroupTimers: TypeAlias = Timers[TimerKey]
Waiting: TypeAlias = set[int]


class Step:
    """Created at the start of a call, turned into GroupEffects at its end."""

    __slots__ = ("_answers", "_records", "_timers", "_waiting", "config", "now")

    def __init__(
        self, config: GroupConfig, now: Moment, timers: GroupTimers, waiting: Waiting
    ) -> None:
        self.config = config
        self.now = now
        self._timers = timers
        self._waiting = waiting
        self._records: list[LogRecord] = []
        self._answers: list[GroupAnswer] = []

    def append(self, record: LogRecord) -> None:
        self._records.append(record)

    def answer(self, token: int, value: AnswerValue) -> None:
        """Answers the request of this call."""
        self._answers.append(GroupAnswer(token, value))

    def park(self, token: int) -> None:
        """Records that `token` waits for an answer."""
        self._waiting.add(token)

    def answer_parked(self, token: int | None, value: AnswerValue) -> None:
        """Answers a waiting token; does nothing if it was cancelled."""
        if token is not None and token in self._waiting:
            self._waiting.remove(token)
            self._answers.append(GroupAnswer(token, value))

    def start_session(self, group: Group, member: Member) -> None:
        """Starts or restarts the member's session timeout."""
        self.start_timer(group, TimerKind.SESSION, member.session_timeout_ms, member.member_id)

    def start_timer(
        self, group: Group, kind: TimerKind, timeout_ms: int, member_id: str = ""
    ) -> None:
        deadline = self.now.monotonic + timeout_ms / 1000
        self._timers.start(TimerKey(group.group_id, kind, member_id), deadline)

    def cancel_timer(self, group: Group, kind: TimerKind, member_id: str = "") -> None:
        self._timers.cancel(TimerKey(group.group_id, kind, member_id))

    def effects(self) -> GroupEffects:
        if not self._records and not self._answers:
            return NOTHING
        return GroupEffects(tuple(self._records), tuple(self._answers))
