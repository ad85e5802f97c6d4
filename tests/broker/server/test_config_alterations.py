from __future__ import annotations

from tests.broker.server.local_broker import LocalBroker

from kafkaesque.broker.cluster.rules.config_changes import ConfigChange, ConfigOperation
from kafkaesque.broker.server.config_alterations import Alteration, alter
from kafkaesque.model.errors import ErrorCode


def test_results_are_in_the_order_of_the_alterations(broker: LocalBroker) -> None:
    broker.create("a")
    change = [ConfigChange("retention.ms", ConfigOperation.SET, "5")]
    alterations = [
        Alteration(2, "nope", change, replace_all=False),
        Alteration(2, "a", change, replace_all=False),
        Alteration(7, "a", change, replace_all=False),
    ]
    verdicts = broker.run(alter(broker.context, alterations, validate_only=False))
    assert [verdict.code for verdict in verdicts] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [verdict.message is None for verdict in verdicts] == [False, True, False]
