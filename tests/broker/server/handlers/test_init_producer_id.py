from __future__ import annotations

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.local_broker import LocalBroker, every_version

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorRequest
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest


def request(
    transactional_id: str | None = None,
    timeout_ms: int = 60_000,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )


def ask(
    broker: LocalBroker, asked: InitProducerIdRequest, version: int = 5
) -> tuple[int, int, int]:
    answer = broker.ask(asked, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", every_version(InitProducerIdRequest))
def test_each_producer_gets_a_unique_id_in_epoch_0(broker: LocalBroker, version: int) -> None:
    assert ask(broker, request(), version) == (ErrorCode.NONE, 0, 0)
    assert ask(broker, request(), version) == (ErrorCode.NONE, 1, 0)


def test_id_that_a_producer_already_has_is_not_kept(broker: LocalBroker) -> None:
    _, first, _ = ask(broker, request())
    code, second, epoch = ask(broker, request(producer_id=first, producer_epoch=3))
    assert (code, epoch) == (ErrorCode.NONE, 0)
    assert second != first


def test_id_is_never_given_twice_be_it_at_once_or_after_a_restart(make_broker: MakeBroker) -> None:
    with make_broker() as broker:
        answers = broker.ask_together(*[request()] * 20, version=5)
        given = {answer.producer_id for answer in answers}
        assert len(given) == 20
    _, after, _ = ask(make_broker(), request())
    assert after > max(given)


@pytest.mark.parametrize(("producer_id", "producer_epoch"), [(5, -1), (-1, 5)])
def test_id_without_epoch_or_epoch_without_id_is_refused(
    broker: LocalBroker, producer_id: int, producer_epoch: int
) -> None:
    asked = request(producer_id=producer_id, producer_epoch=producer_epoch)
    assert ask(broker, asked) == (ErrorCode.INVALID_REQUEST, -1, -1)


def test_empty_transactional_id_is_refused(broker: LocalBroker) -> None:
    assert ask(broker, request("")) == (ErrorCode.INVALID_REQUEST, -1, -1)


@pytest.fixture
def coordinator(broker: LocalBroker) -> LocalBroker:
    """FindCoordinator creates the transaction topic."""
    answer = broker.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["t"]), 4)
    assert [row.error_code for row in answer.coordinators] == [ErrorCode.NONE]
    return broker


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_transaction_timeout_out_of_range_is_refused(
    coordinator: LocalBroker, timeout_ms: int
) -> None:
    assert ask(coordinator, request("t", timeout_ms)) == (
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        -1,
        -1,
    )


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_transaction_timeout_out_of_range_is_refused_before_there_is_a_coordinator(
    broker: LocalBroker, timeout_ms: int
) -> None:
    assert ask(broker, request("t", timeout_ms)) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1)


def test_transactional_id_without_its_topic_finds_no_coordinator(broker: LocalBroker) -> None:
    assert ask(broker, request("t")) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)


@pytest.mark.parametrize("version", every_version(InitProducerIdRequest))
def test_transactional_producer_keeps_its_id_and_raises_its_epoch(
    coordinator: LocalBroker, version: int
) -> None:
    assert ask(coordinator, request("t"), version) == (ErrorCode.NONE, 0, 0)
    assert ask(coordinator, request("t"), version) == (ErrorCode.NONE, 0, 1)
    assert ask(coordinator, request("u"), version) == (ErrorCode.NONE, 1, 0)


@pytest.mark.parametrize(
    ("version", "code"),
    [
        (3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.PRODUCER_FENCED),
        (5, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_producer_of_an_older_epoch_is_fenced_with_the_code_of_its_version(
    coordinator: LocalBroker, version: int, code: int
) -> None:
    for _ in range(3):
        ask(coordinator, request("t"))
    old = request("t", producer_id=0, producer_epoch=0)
    assert ask(coordinator, old, version) == (code, -1, -1)
