"""How the harness for Apache Kafka sees that a broker serves. No JVM is started."""

from __future__ import annotations

import socket

from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.testing import Broker
from kafkaesque.testing.apache_kafka import _broker_count


def test_a_broker_that_answers_lists_its_cluster() -> None:
    with Broker() as broker:
        assert _broker_count(parse_broker_address(broker.bootstrap_servers).port) == 1


def test_a_port_that_nobody_serves_has_no_brokers() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        assert _broker_count(reserved.getsockname()[1]) == 0
