"""Single requests to the brokers of a cluster."""

from __future__ import annotations

import pytest
from tests.cli.servers import ScriptedKafka

from kafkaesque.admin.cluster import BlockingAdmin, BrokerNode, has_broker_setting, list_brokers
from kafkaesque.admin.errors import AdminError, BrokerUnavailable
from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.model.address import Address
from kafkaesque.testing import Broker as RunningBroker
from kafkaesque.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


def test_versions_features_and_brokers_are_read() -> None:
    brokers = [BrokerNode(4, "kafka.example", 9092)]
    with (
        ScriptedKafka(brokers) as server,
        BlockingConnection(Address("127.0.0.1", server.port), timeout_s=5) as connection,
    ):
        versions = connection.protocol.api_versions
        assert versions.apis == {3: (0, 13), 18: (0, 4)}
        assert versions.features == {"metadata.version": (7, 30)}
        assert list_brokers(connection) == brokers


def test_setting_of_a_broker_is_found() -> None:
    with (
        RunningBroker() as broker,
        BlockingConnection(
            parse_broker_address(broker.bootstrap_servers), timeout_s=5
        ) as connection,
    ):
        assert has_broker_setting(connection, 0, "flush")
        assert not has_broker_setting(connection, 0, "no.such.setting")


def test_first_bootstrap_address_that_answers_is_used() -> None:
    with RunningBroker() as broker:
        address = parse_broker_address(broker.bootstrap_servers)
        cluster = BlockingAdmin([Address("127.0.0.1", 1), address], timeout_s=5)
        assert cluster.brokers() == [BrokerNode(0, *address)]


def test_silent_cluster_is_unavailable_and_every_address_is_named() -> None:
    cluster = BlockingAdmin([Address("127.0.0.1", 1), Address("127.0.0.1", 2)], timeout_s=5)
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        cluster.brokers()


def test_request_that_the_broker_lacks_is_an_error() -> None:
    with ScriptedKafka([]) as server:
        broker = BrokerNode(0, "127.0.0.1", server.port)
        cluster = BlockingAdmin([Address(broker.host, broker.port)], timeout_s=5)
        request = DescribeQuorumRequest(topics=[])
        with pytest.raises(AdminError, match="cannot look: this Kafka has no such request"):
            cluster.call_broker(broker, request, DescribeQuorumResponse, "look")
