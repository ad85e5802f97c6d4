"""Which value of a broker setting is in force: given at start, dynamic, or the default."""

from __future__ import annotations

import pytest

from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.model.ids import NodeId
from kafkaesque.model.limits import CONNECTIONS_DEFAULT
from kafkaesque.model.settings import broker_config

ME, OTHER = NodeId(1), NodeId(2)


def started_with(**settings: str) -> DynamicConfig:
    """Node 1 with settings, dots as underscores."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return DynamicConfig(broker_config({"node.id": "1", **named}))


def test_own_dynamic_value_precedes_that_of_all_brokers_and_the_static_one() -> None:
    settings = started_with(log_segment_bytes="400")
    assert settings.load({None: {"log.segment.bytes": "300"}}) == []
    assert settings.current.log_segment_bytes == 300
    settings.load({None: {"log.segment.bytes": "300"}, ME: {"log.segment.bytes": "200"}})
    assert settings.current.log_segment_bytes == 200
    settings.load({OTHER: {"log.segment.bytes": "100"}})
    assert settings.current.log_segment_bytes == 400


@pytest.mark.parametrize("at_start", ["1000", str(CONNECTIONS_DEFAULT)])
@pytest.mark.parametrize("node_id", [None, ME])
def test_connection_limit_given_at_start_wins(at_start: str, node_id: NodeId | None) -> None:
    settings = started_with(max_connections=at_start)
    settings.load({node_id: {"max.connections": "5", "max.connections.per.ip": "7"}})
    assert settings.current.max_connections == int(at_start)
    assert settings.current.max_connections_per_ip == 7  # not given at start


def test_connection_limit_that_was_not_given_at_start_is_dynamic() -> None:
    settings = started_with()
    settings.load({None: {"max.connections": "5"}})
    assert settings.current.max_connections == 5


def test_stored_value_that_is_invalid_now_is_ignored_and_reported() -> None:
    settings = started_with()
    ignored = settings.load(
        {None: {"max.connections": "0", "no.such.setting": "1", "log.segment.bytes": "300"}}
    )
    assert settings.current.max_connections == CONNECTIONS_DEFAULT
    assert settings.current.log_segment_bytes == 300
    assert ignored == [
        "Invalid value 0 for configuration max.connections: Value must be at least 2",
        "Unknown broker config name: no.such.setting",
    ]
