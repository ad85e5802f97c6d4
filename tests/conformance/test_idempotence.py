"""Answers get lost, producers retry, and the log holds every record once and in order."""

from __future__ import annotations

import pytest
from tests.conformance import batches
from tests.conformance.clients import Client, Message
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, produce
from tests.conformance.raw import RawClient
from tests.conformance.relay import Relay
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode


@pytest.fixture
def direct(bootstrap: str) -> str:
    """The address, if it can be replaced by that of a relay."""
    if not bootstrap.startswith("127.0.0.1:") or "," in bootstrap:
        pytest.skip("the relay needs a single broker on 127.0.0.1: run without KAFKA")
    return bootstrap


def test_lost_answers_neither_lose_nor_repeat_nor_reorder_records(
    client: Client, topic: str, direct: str
) -> None:
    count = 600
    sent = [Message(b"%d" % index + b"." * 100) for index in range(count)]
    with Relay(direct, loses=lambda n: n in (1, 3, 6, 9, 13)) as relay:
        client.produce(topic, sent, idempotent=True, bootstrap=relay.address, batch_bytes=2000)
        assert relay.lost_count >= 2
    assert [r.value for r in client.read_all(topic, count)] == [m.value for m in sent]
    assert client.watermarks(topic, 0) == (0, count)


def producer_id(raw: RawClient) -> tuple[int, int]:
    def ask() -> tuple[int, int]:
        answer = raw.call("init_producer_id", 4, transactional_id=None, transaction_timeout=60_000)
        assert answer["error_code"] == ErrorCode.NONE
        return answer["producer_id"], answer["producer_epoch"]

    return eventually_passes(ask)


class Sender:
    """A producer that chooses its own sequence numbers."""

    def __init__(self, raw: RawClient, topic: str) -> None:
        self.raw, self.topic = raw, topic
        self.producer_id, self.epoch = producer_id(raw)

    def send(self, sequence: int, count: int = 1, epoch: int | None = None) -> tuple[int, int]:
        """(error code, base offset)"""
        batch = batches.encode(
            [batches.Record(b"k", b"v")] * count,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = produce(self.raw, self.topic, batch)
        return answer["error_code"], answer["base_offset"]


@pytest.fixture
def sender(raw: RawClient, topic: str) -> Sender:
    return Sender(raw, topic)


def test_repeated_batch_is_answered_with_its_first_offset(sender: Sender) -> None:
    assert sender.send(0, 2) == (ErrorCode.NONE, 0)
    assert sender.send(2) == (ErrorCode.NONE, 2)
    assert sender.send(2) == (ErrorCode.NONE, 2)
    assert sender.send(0, 2) == (ErrorCode.NONE, 0)
    assert sender.send(3) == (ErrorCode.NONE, 3)


def test_repeats_are_recognised_for_the_last_five_batches(sender: Sender) -> None:
    for sequence in range(8):
        assert sender.send(sequence) == (ErrorCode.NONE, sequence)
    for sequence in range(3, 8):
        assert sender.send(sequence) == (ErrorCode.NONE, sequence)
    assert sender.send(2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sender.send(8) == (ErrorCode.NONE, 8)


def test_gap_and_overlap_are_out_of_order(sender: Sender) -> None:
    assert sender.send(0, 3) == (ErrorCode.NONE, 0)
    assert sender.send(4) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sender.send(1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sender.send(3) == (ErrorCode.NONE, 3)


def test_new_epoch_starts_at_zero_and_fences_the_old_one(sender: Sender) -> None:
    assert sender.send(0) == (ErrorCode.NONE, 0)
    assert sender.send(5, epoch=sender.epoch + 1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert sender.send(0, epoch=sender.epoch + 1) == (ErrorCode.NONE, 1)
    assert sender.send(1, epoch=sender.epoch) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_unknown_producer_may_start_anywhere(sender: Sender) -> None:
    assert sender.send(7) == (ErrorCode.NONE, 0)
    assert sender.send(8) == (ErrorCode.NONE, 1)
    assert sender.send(0) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_sequences_wrap_from_the_largest_to_zero(sender: Sender) -> None:
    largest = 2**31 - 1
    assert sender.send(largest - 1, 2) == (ErrorCode.NONE, 0)
    assert sender.send(0) == (ErrorCode.NONE, 2)


def test_sequences_count_per_partition(raw: RawClient, topics: Topics) -> None:
    topic = topics.create(partitions=2)
    producer, epoch = producer_id(raw)
    for partition in (0, 1):
        batch = batches.encode(
            [batches.Record(b"k", b"v")],
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=0,
        )
        answer = produce(raw, topic, batch, partition=partition)
        assert (answer["error_code"], answer["base_offset"]) == (ErrorCode.NONE, 0)


def test_producer_ids_are_unique(raw: RawClient) -> None:
    given = [producer_id(raw) for _ in range(50)]
    assert len({one for one, _ in given}) == 50
    assert {epoch for _, epoch in given} == {0}


def test_stored_batch_keeps_the_producers_identity(raw: RawClient, sender: Sender) -> None:
    sender.send(0, 2)
    (stored,) = batches.split(fetch(raw, sender.topic)["records"])
    header = batches.header(stored)
    assert (header.producer_id, header.producer_epoch) == (sender.producer_id, sender.epoch)
    assert (header.base_sequence, header.record_count) == (0, 2)
