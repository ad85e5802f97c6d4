"""Outcomes of records by error, and the mapping of keys to partitions."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafkaesque.lab.faults.checks.history import OperationOutcome
from kafkaesque.lab.faults.clients import Partitions, error_in, outcome_of


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (None, OperationOutcome.OK),
        (KafkaError.MSG_SIZE_TOO_LARGE, OperationOutcome.FAIL),
        (KafkaError.INVALID_RECORD, OperationOutcome.FAIL),
        # The topic was lost in a crash: an earlier attempt may have been written to it.
        (KafkaError._UNKNOWN_TOPIC, OperationOutcome.INFO),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, OperationOutcome.INFO),
        (KafkaError._MSG_TIMED_OUT, OperationOutcome.INFO),
        (KafkaError._TRANSPORT, OperationOutcome.INFO),
        (KafkaError._PURGE_INFLIGHT, OperationOutcome.INFO),
        # It is queued again after an attempt whose answer was lost: it may have been written.
        (KafkaError._PURGE_QUEUE, OperationOutcome.INFO),
        (KafkaError.REQUEST_TIMED_OUT, OperationOutcome.INFO),
        (KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, OperationOutcome.INFO),
        (KafkaError.KAFKA_STORAGE_ERROR, OperationOutcome.INFO),
        (KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, OperationOutcome.INFO),
    ],
)
def test_record_has_failed_only_if_it_cannot_have_been_written(
    code: int | None, outcome: OperationOutcome
) -> None:
    assert outcome_of(None if code is None else KafkaError(code)) is outcome


def test_keys_are_partitions_one_to_one() -> None:
    partitions = Partitions(("a", "b"), 3)
    places = [partitions.place(key) for key in partitions.keys]
    assert places == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert [partitions.key(*place) for place in places] == list(partitions.keys)
    wanted = partitions.topic_partition(4, 17)
    assert (wanted.topic, wanted.partition, wanted.offset) == ("b", 1, 17)


def test_error_is_found_in_an_exception_that_has_one() -> None:
    error = KafkaError(KafkaError._FATAL)
    assert error_in(KafkaException(error)) is error
    assert error_in(KafkaException("a bare text")) is None
    assert error_in(KafkaException()) is None
