"""What brokers ask of the controller on their own account, and the bytes of question and answer.

A client's request to the controller travels as it came; these are for what no client asked for in
so many words. Pure: `decide` is what the controller's leader runs.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec

from kafkaesque.broker.cluster.rules.controller import Controller, NewTopic, Outcome
from kafkaesque.broker.cluster.rules.registration import NewBroker
from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.model.errors import ErrorCode, KafkaError, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId

T = TypeVar("T")


class Registered(msgspec.Struct, frozen=True):
    """What a broker is told that has none of the controller's log yet."""

    generation: int
    brokers: list[tuple[int, str, int]]
    """Node id, host and port of all brokers."""


class RegisterMe(msgspec.Struct, frozen=True, tag="register"):
    """A broker joins, or came back. The answer is a `Registered`."""

    node_id: int
    directory_id: UUID
    host: str
    port: int
    rack: str | None
    incarnation: int

    def decide(self, controller: Controller) -> Outcome[Registered]:
        wanted = NewBroker(
            NodeId(self.node_id),
            self.directory_id,
            self.host,
            self.port,
            self.rack,
            self.incarnation,
        )
        outcome = controller.register_broker(wanted)
        brokers = [
            (int(broker.node_id), broker.host, broker.port)
            for broker in controller.tables.brokers.values()
        ]
        return Outcome(outcome.commands, Registered(outcome.answer.generation, brokers))


class WantedTopic(msgspec.Struct, frozen=True, array_like=True):
    """As `NewTopic`, for the wire between brokers."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    configs: dict[str, str] = {}


class CreateTopics(msgspec.Struct, frozen=True, tag="create_topics"):
    """Topics that are there already are no error. The answer has code and message of the others."""

    topics: tuple[WantedTopic, ...]

    def decide(self, controller: Controller) -> Outcome[dict[str, tuple[int, str]]]:
        wanted = [
            NewTopic(
                topic.name, topic.partition_count, topic.replication_factor, configs=topic.configs
            )
            for topic in self.topics
            if topic.name not in controller.tables.by_name
        ]
        outcome = controller.create_topics(wanted)
        refused = {
            topic.name: (int(result.code), str(result))
            for topic, result in zip(wanted, outcome.answer, strict=True)
            if isinstance(result, KafkaError)
        }
        return Outcome(outcome.commands, refused)


class ReserveProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """The answer is the first id and the one behind the last."""

    def decide(self, controller: Controller) -> Outcome[tuple[int, int]]:
        outcome = controller.reserve_producer_ids()
        return Outcome(outcome.commands, (outcome.answer.start, outcome.answer.stop))


class CompleteReassignment(msgspec.Struct, frozen=True, tag="complete_reassignment"):
    group_id: int
    target: tuple[int, ...]

    def decide(self, controller: Controller) -> Outcome[None]:
        target = [NodeId(node) for node in self.target]
        return controller.complete_reassignment(GroupId(self.group_id), target)


Operation = RegisterMe | CreateTopics | ReserveProducerIds | CompleteReassignment


class Reply(msgspec.Struct, frozen=True):
    """`index`: from this entry of the controller's log on the tables hold what was done."""

    index: int
    answer: msgspec.Raw = msgspec.Raw(b"\xc0")
    error_code: int = 0
    error_message: str = ""


class Refused(KafkaError):
    """What the controller refused, with the code it gave."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode(code)  # type: ignore[misc]


_operation_decoder = msgspec.msgpack.Decoder(Operation)
_reply_decoder = msgspec.msgpack.Decoder(Reply)


def encode_operation(operation: Operation) -> bytes:
    return msgspec.msgpack.encode(operation)


def decode_operation(data: bytes) -> Operation:
    try:
        operation: Operation = _operation_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"operation: {error}") from None
    return operation


def encode_answer(answer: object, index: LogIndex) -> bytes:
    return msgspec.msgpack.encode(Reply(index, msgspec.Raw(msgspec.msgpack.encode(answer))))


def encode_refusal(error: KafkaError) -> bytes:
    return msgspec.msgpack.encode(Reply(0, error_code=int(error.code), error_message=str(error)))


def decode_reply(data: bytes, answer: type[T]) -> tuple[T, LogIndex]:
    """The answer and the index to wait for; raises what was refused."""
    try:
        reply = _reply_decoder.decode(data)
        if reply.error_code:
            raise Refused(reply.error_code, reply.error_message)
        return msgspec.msgpack.decode(reply.answer, type=answer), LogIndex(reply.index)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"reply: {error}") from None
