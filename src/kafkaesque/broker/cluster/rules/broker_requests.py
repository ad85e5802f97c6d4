"""Requests that brokers send to the controller on their own behalf, and their encoding.

A client's request is forwarded to the controller as it is; these are the others. The controller
runs `decide`.
"""

from __future__ import annotations

from typing import TypeVar
from uuid import UUID

import msgspec

from kafkaesque.broker.cluster.rules.controller import Controller, Decision, NewTopic
from kafkaesque.broker.cluster.rules.registration import NewBroker
from kafkaesque.broker.raft.types import LogIndex
from kafkaesque.model.errors import ErrorCode, KafkaError, ProtocolError
from kafkaesque.model.ids import GroupId, NodeId

T = TypeVar("T")


class Registered(msgspec.Struct, frozen=True):
    """The answer to a registration, for a broker that has none of the controller's log yet."""

    generation: int
    brokers: list[tuple[int, str, int]]
    """Node id, host and port of all brokers."""


class BrokerRegistration(msgspec.Struct, frozen=True, tag="register"):
    """A broker joins or comes back. The answer is `Registered`."""

    node_id: int
    directory_id: UUID
    host: str
    port: int
    rack: str | None
    incarnation: int

    def decide(self, controller: Controller) -> Decision[Registered]:
        wanted = NewBroker(
            NodeId(self.node_id),
            self.directory_id,
            self.host,
            self.port,
            self.rack,
            self.incarnation,
        )
        decision = controller.register_broker(wanted)
        brokers = [
            (int(broker.node_id), broker.host, broker.port)
            for broker in controller.tables.brokers.values()
        ]
        return Decision(decision.commands, Registered(decision.answer.generation, brokers))


class EnsureTopics(msgspec.Struct, frozen=True, tag="create_topics"):
    """Create the topics that do not exist yet. The answer has error code and message by topic."""

    topics: tuple[NewTopic, ...]

    def decide(self, controller: Controller) -> Decision[dict[str, tuple[int, str]]]:
        missing = [topic for topic in self.topics if topic.name not in controller.tables.by_name]
        decision = controller.create_topics(missing)
        errors = {
            topic.name: (int(result.code), str(result))
            for topic, result in zip(missing, decision.answer, strict=True)
            if isinstance(result, KafkaError)
        }
        return Decision(decision.commands, errors)


class AllocateProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """The answer is the first id of a block and the one after its last."""

    def decide(self, controller: Controller) -> Decision[tuple[int, int]]:
        decision = controller.reserve_producer_ids()
        return Decision(decision.commands, (decision.answer.start, decision.answer.stop))


class FinishReassignment(msgspec.Struct, frozen=True, tag="complete_reassignment"):
    """From the group's leader: its members are those of `target`."""

    group_id: int
    target: tuple[int, ...]

    def decide(self, controller: Controller) -> Decision[None]:
        target = [NodeId(node) for node in self.target]
        return controller.complete_reassignment(GroupId(self.group_id), target)


BrokerRequest = BrokerRegistration | EnsureTopics | AllocateProducerIds | FinishReassignment


class ControllerReply(msgspec.Struct, frozen=True):
    index: int
    """The tables contain the change from this entry of the controller's log on."""
    answer: msgspec.Raw = msgspec.Raw(b"\xc0")
    error_code: int = 0
    error_message: str = ""


class ControllerError(KafkaError):
    """An error that the controller returned, with its code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = ErrorCode(code)  # type: ignore[misc]


_request_decoder = msgspec.msgpack.Decoder(BrokerRequest)
_reply_decoder = msgspec.msgpack.Decoder(ControllerReply)


def encode_request(request: BrokerRequest) -> bytes:
    return msgspec.msgpack.encode(request)


def decode_request(data: bytes) -> BrokerRequest:
    try:
        request: BrokerRequest = _request_decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"request to the controller: {error}") from None
    return request


def encode_answer(answer: object, index: LogIndex) -> bytes:
    return msgspec.msgpack.encode(
        ControllerReply(index, msgspec.Raw(msgspec.msgpack.encode(answer)))
    )


def encode_error(error: KafkaError) -> bytes:
    return msgspec.msgpack.encode(
        ControllerReply(0, error_code=int(error.code), error_message=str(error))
    )


def decode_reply(data: bytes, answer: type[T]) -> tuple[T, LogIndex]:
    """Returns the answer and the index to wait for; raises the error that the controller returned."""
    try:
        reply = _reply_decoder.decode(data)
        if reply.error_code:
            raise ControllerError(reply.error_code, reply.error_message)
        return msgspec.msgpack.decode(reply.answer, type=answer), LogIndex(reply.index)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"reply of the controller: {error}") from None
