"""One partition of users and rooms while a back end serves it: records in, records to write out.

Decisions are folded at once, so that the next command of a batch sees them; if the batch cannot be
written, the home is thrown away and the log is asked again. So a home is never behind the log, and
ahead of it for the length of one transaction only.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field

from kafkaesque.chat.records import journal_record, other_records
from kafkaesque.chat.rules.answers import Directory, answer
from kafkaesque.chat.rules.commands import BadCommand, parse_command
from kafkaesque.chat.rules.decide import Moment, decide, refuse_bad
from kafkaesque.chat.rules.fold import fold_all
from kafkaesque.chat.rules.handovers import HandoverUnreadable, decode_handover
from kafkaesque.chat.rules.outputs import Outputs
from kafkaesque.chat.rules.receive import receive
from kafkaesque.chat.rules.state import PartitionState
from kafkaesque.client.ports import Received, Record
from kafkaesque.events.chat import CHAT_HANDOVER
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset, PartitionIndex

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """What a back end has done since it started."""

    commands: int = 0
    asks: int = 0
    handovers: int = 0
    repeats: int = 0
    refused: int = 0
    poison: int = 0
    """Records that are no command, or that a rule failed on."""
    messages: int = 0
    facts: int = 0
    events: int = 0
    ops: Counter[str] = field(default_factory=Counter)

    def note(self, outputs: Outputs) -> None:
        self.repeats += outputs.is_repeat
        self.facts += len(outputs.facts)
        self.events += len(outputs.inbox) + len(outputs.rooms)
        for event in outputs.inbox:
            self.messages += event.type == "message.new"
            self.refused += event.type == "result" and not event.body["ok"]
        self.refused += sum(reply.code is not None for reply in outputs.replies)


@dataclass(slots=True)
class Home:
    """The state of one partition, and how far its journal goes."""

    partition: PartitionIndex
    state: PartitionState
    journal_next: Offset
    facts_since_snapshot: int = 0

    def take(self, record: Received, surroundings: Surroundings) -> Decided:
        """What follows from one record of one of the partition's inputs."""
        try:
            outputs = self._decide(record, surroundings)
            others = tuple(
                other_records(outputs, surroundings.moment.now_ms, surroundings.reply_partitions)
            )
        except InvariantBroken:
            raise
        except Exception as error:
            # One record must never stop a partition. The rules are pure, so nothing has happened
            # yet: the sender is told, and all go on.
            logger.exception("%s-%d@%d", record.topic, record.partition, record.offset)
            surroundings.counts.poison += 1
            outputs = _give_up(record, error)
            others = tuple(
                other_records(outputs, surroundings.moment.now_ms, surroundings.reply_partitions)
            )
        surroundings.counts.note(outputs)
        fold_all(self.state, outputs.facts)
        self.facts_since_snapshot += len(outputs.facts)
        return Decided(journal_record(outputs, record.key or b"", self.partition), others)

    def _decide(self, record: Received, surroundings: Surroundings) -> Outputs:
        counts = surroundings.counts
        if record.topic == CHAT_HANDOVER.name:
            counts.handovers += 1
            try:
                handover = decode_handover(record.value or b"")
            except HandoverUnreadable as error:
                counts.poison += 1
                logger.warning("%s-%d@%d: %s", record.topic, record.partition, record.offset, error)
                return Outputs()
            return receive(handover, self.state, surroundings.moment)
        try:
            command = parse_command(
                record.key, record.value, dict(record.headers), record.timestamp_ms
            )
        except BadCommand as bad:
            counts.poison += 1
            return refuse_bad(bad)
        counts.ops[type(command.request).__name__] += 1
        if command.asked is not None:
            counts.asks += 1
            return answer(command, self.state, surroundings.directory, surroundings.moment)
        counts.commands += 1
        return decide(command, self.state, surroundings.moment)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a home may use beyond its own state."""

    moment: Moment
    directory: Directory
    reply_partitions: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class Decided:
    journal: Record | None
    others: tuple[Record, ...]


def _give_up(record: Received, error: Exception) -> Outputs:
    try:
        command = parse_command(record.key, record.value, dict(record.headers), 0)
    except BadCommand as bad:
        return refuse_bad(bad)
    text = f"the command could not be carried out ({type(error).__name__})"
    return refuse_bad(BadCommand("internal-error", text, command.user, command.id, command.asked))
