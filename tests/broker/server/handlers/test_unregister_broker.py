from __future__ import annotations

from uuid import UUID

from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.cluster.rules.commands import RegisterBroker
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.unregister_broker import UnregisterBrokerRequest


def unregister(broker: LocalBroker, node_id: int) -> tuple[int, str | None]:
    answer = broker.ask(UnregisterBrokerRequest(broker_id=node_id), 0)
    return answer.error_code, answer.error_message


def test_broker_that_is_registered_is_no_more_and_cannot_be_twice(broker: LocalBroker) -> None:
    tables = broker.context.cluster.tables
    tables.apply(RegisterBroker(7, UUID(int=7), "host", 9092))
    assert unregister(broker, 7) == (ErrorCode.NONE, "")
    assert 7 not in tables.brokers
    assert unregister(broker, 7) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 7 is not currently registered",
    )
    assert unregister(broker, -1) == (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID -1 is not currently registered",
    )
