"""Commands of the transaction scripts. Every effect is carried out at once, and printed.

init ID [timeout=60s] [as=PID:EPOCH]        InitProducerId
add ID PID:EPOCH t/0 ...                     AddPartitionsToTxn
verify ID PID:EPOCH t/0 ...                  the same, verify only
commit | abort ID PID:EPOCH [flow=new]       EndTxn
written ID PID:EPOCH t/0 ...                 these partitions have their markers
advance 5s                                   time passes; timers ring
jump 5s | -5s                                the clock of the wall is set
restart                                      a new coordinator reads the log
expire                                       remove unused ids
describe ID
"""

from __future__ import annotations

from collections.abc import Iterator

from kafkaesque.broker.transactions.log_format import TransactionValue, decode, decode_key, encode
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    NOBODY,
    OLD_FLOW,
    AddAnswer,
    AnswerValue,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    PartitionsRequest,
    TransactionConfig,
    TransactionEffects,
    TransactionState,
    VerifyAnswer,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.ids import (
    NO_PRODUCER,
    NO_TIMESTAMP,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TimestampMs,
    TopicPartition,
)
from kafkaesque.testing.script import Command

START_MS = 1_700_000_000_000


class Interpreter:
    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config or TransactionConfig(id_expiration_ms=3_600_000)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.seconds = 0.0
        self.jumped_ms = 0
        self.next_producer_id = 0
        self.next_token = 1
        self.registry = TransactionRegistry(self.config)
        self.registry.loaded(self.now)

    @property
    def now(self) -> Moment:
        passed_ms = round(self.seconds * 1000)
        return Moment(self.seconds, TimestampMs(START_MS + self.jumped_ms + passed_ms))

    def execute(self, command: Command) -> Iterator[str]:
        yield from getattr(self, f"_{command.name}")(command)

    # -- commands -----------------------------------------------------------------------------------

    def _init(self, command: Command) -> Iterator[str]:
        command.expect_options("timeout", "as")
        (name,) = command.arguments
        known = command.options.get("as")
        request = InitRequest(
            transactional_id=name,
            timeout_ms=round(seconds(command.option("timeout", "60s")) * 1000),
            known=NOBODY if known is None else identity(known),
            spare_producer_id=self._spare(name),
        )
        yield from self._carry_out(self.registry.init_producer(request, self._token(), self.now))

    def _spare(self, name: str) -> ProducerId:
        if not self.registry.needs_producer_id(name):
            return NO_PRODUCER
        self.next_producer_id += 1
        return ProducerId(self.next_producer_id - 1)

    def _add(self, command: Command) -> Iterator[str]:
        yield from self._carry_out(
            self.registry.add_partitions(partitions_request(command), self._token(), self.now)
        )

    def _verify(self, command: Command) -> Iterator[str]:
        yield from self._carry_out(
            self.registry.verify_partitions(partitions_request(command), self._token(), self.now)
        )

    def _commit(self, command: Command) -> Iterator[str]:
        yield from self._end(command, is_commit=True)

    def _abort(self, command: Command) -> Iterator[str]:
        yield from self._end(command, is_commit=False)

    def _end(self, command: Command, *, is_commit: bool) -> Iterator[str]:
        command.expect_options("flow")
        name, producer = command.arguments
        flow = NEW_FLOW if command.option("flow", "old") == "new" else OLD_FLOW
        request = EndRequest(
            transactional_id=name,
            producer=identity(producer),
            is_commit=is_commit,
            flow=flow,
            spare_producer_id=self._spare(name) if flow == NEW_FLOW else NO_PRODUCER,
        )
        yield from self._carry_out(self.registry.end(request, self._token(), self.now))

    def _written(self, command: Command) -> Iterator[str]:
        name, producer, *partitions = command.arguments
        yield from self._carry_out(
            self.registry.markers_written(
                name, identity(producer), map(partition, partitions), self.now
            )
        )

    def _advance(self, command: Command) -> Iterator[str]:
        end = self.seconds + seconds(command.arguments[0])
        while (due := self.registry.next_deadline()) is not None and due <= end:
            self.seconds = max(self.seconds, due)
            for line in self._carry_out(self.registry.tick(self.now)):
                yield f"@{self.seconds:g}s {line}"
        self.seconds = end

    def _jump(self, command: Command) -> Iterator[str]:
        self.jumped_ms += round(seconds(command.arguments[0]) * 1000)
        yield from ()

    def _restart(self, _: Command) -> Iterator[str]:
        self.registry = TransactionRegistry(self.config)
        for key, value in self.log:
            self.registry.replay(key, value)
        yield from self._carry_out(self.registry.loaded(self.now))

    def _have(self, command: Command) -> Iterator[str]:
        name, producer = command.arguments
        value = TransactionValue(
            producer_id=identity(producer).producer_id,
            epoch=identity(producer).epoch,
            timeout_ms=60_000,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            updated_ms=self.now.wall_ms,
            started_ms=NO_TIMESTAMP,
        )
        self.log.append(encode(name, value))
        yield from self._restart(command)

    def _expire(self, _: Command) -> Iterator[str]:
        yield from self._carry_out(self.registry.expire_ids(self.now))

    def _describe(self, command: Command) -> Iterator[str]:
        found = self.registry.describe(command.arguments[0])
        if found.error:
            yield found.error.name
        else:
            names = " ".join(map(shown, found.partitions))
            yield f"{found.state} {producer_text(found.producer)} [{names}]"

    # -- effects ------------------------------------------------------------------------------------

    def _token(self) -> int:
        self.next_token += 1
        return self.next_token - 1

    def _carry_out(self, effects: TransactionEffects) -> Iterator[str]:
        for key, value in effects.records:
            self.log.append((key, value))
            self.registry.replay(key, value)
            yield f"log {shown_record(key, value)}"
        for token, answer in effects.answers:
            yield f"#{token} {shown_answer(answer)}"
        for markers in effects.markers:
            end = "commit" if markers.is_commit else "abort"
            names = " ".join(map(shown, markers.partitions))
            flow = "new" if markers.flow == NEW_FLOW else "old"
            yield f"markers {markers.transactional_id} {end} {producer_text(markers.producer)} {flow} [{names}]"


def identity(text: str) -> ProducerIdentity:
    producer_id, _, epoch = text.partition(":")
    return ProducerIdentity(ProducerId(int(producer_id)), ProducerEpoch(int(epoch)))


def producer_text(producer: ProducerIdentity) -> str:
    return f"{producer.producer_id}:{producer.epoch}"


def partition(text: str) -> TopicPartition:
    topic, _, index = text.partition("/")
    return TopicPartition(topic, PartitionIndex(int(index)))


def shown(name: TopicPartition) -> str:
    return f"{name.topic}/{name.partition}"


def seconds(text: str) -> float:
    return float(text.removesuffix("s"))


def partitions_request(command: Command) -> PartitionsRequest:
    name, producer, *partitions = command.arguments
    return PartitionsRequest(
        transactional_id=name,
        producer=identity(producer),
        partitions=frozenset(map(partition, partitions)),
    )


def shown_record(key: bytes, value: bytes | None) -> str:
    name = decode_key(key)
    if value is None:
        return f"{name} gone"
    found = decode(value)
    names = " ".join(sorted(map(shown, found.partitions)))
    following = "" if found.next_producer_id < 0 else f" next={found.next_producer_id}"
    return f"{name} {found.state.title} {found.producer_id}:{found.epoch}{following} [{names}]"


def shown_answer(answer: AnswerValue) -> str:
    match answer:
        case InitAnswer():
            return f"init {answer.error.name if answer.error else producer_text(answer.producer)}"
        case AddAnswer():
            return f"add {answer.error.name}"
        case VerifyAnswer():
            rows = sorted(f"{shown(name)}:{code.name}" for name, code in answer.errors.items())
            return f"verify {' '.join(rows)}"
        case EndAnswer():
            return f"end {answer.error.name if answer.error else producer_text(answer.producer)}"
