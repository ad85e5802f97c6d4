from __future__ import annotations

import socket

from tests.cli.servers import ScriptedKafka

from kafkaesque.admin.cluster import BrokerNode
from kafkaesque.client.wire.protocol import ApiVersions
from kafkaesque.model.settings import BROKER_SETTINGS
from kafkaesque.up.doctor.network import (
    OUR_SETTING,
    examine_address,
    examine_advertised,
    examine_default_ports,
    guess_software,
)
from kafkaesque.wire.table import Versions


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_kafka_is_recognised_with_its_versions() -> None:
    with ScriptedKafka([BrokerNode(0, "127.0.0.1", 1)]) as server:
        finding, answer = examine_address("127.0.0.1", server.port, 5)
    assert finding.status == "ok"
    assert "Apache Kafka 4.x" in finding.text
    assert finding.facts["apis"]["18"] == [0, 4]
    assert answer is not None


def test_a_closed_port_fails_and_names_the_command_that_opens_it() -> None:
    finding, answer = examine_address("127.0.0.1", free_port(), 5)
    assert (finding.status, answer) == ("fail", None)
    assert "kafkaesque broker" in (finding.fix or "")


def test_an_http_server_is_recognised() -> None:
    with ScriptedKafka([], raw_answer=b"HTTP/1.1 400 Bad Request\r\n\r\n") as server:
        finding, _ = examine_address("127.0.0.1", server.port, 5)
    assert finding.status == "fail"
    assert "HTTP server" in finding.text


def test_a_name_that_does_not_resolve_fails() -> None:
    finding, _ = examine_address("no-such-host.invalid", 9092, 5)
    assert "does not resolve" in finding.text


def test_advertised_addresses_are_tried_and_the_fix_is_named() -> None:
    with ScriptedKafka([]) as server:
        nodes = [
            BrokerNode(0, "127.0.0.1", server.port),
            BrokerNode(1, "no-such-host.invalid", 9092),
            BrokerNode(2, "127.0.0.1", free_port()),
        ]
        findings = list(examine_advertised("127.0.0.1:9092", nodes, 5))
    assert [f.status for f in findings] == ["ok", "fail", "fail"]
    assert "does not resolve" in findings[1].text
    assert all("advertised.listeners" in (f.fix or "") for f in findings[1:])


def test_a_taken_default_port_is_a_warning() -> None:
    findings = list(examine_default_ports(set()))
    assert findings
    assert all((f.status == "warn") == (f.fix is not None) for f in findings)


def test_software_is_guessed_from_its_apis_and_features() -> None:
    feature = {"metadata.version": Versions(7, 21)}
    newer = ApiVersions({0: Versions(0, 13)}, feature)
    older = ApiVersions({4: Versions(0, 7)}, feature)
    assert "4.x" in guess_software(newer, has_our_setting=False)
    assert "3.x" in guess_software(older, has_our_setting=False)
    assert guess_software(ApiVersions({}), has_our_setting=True) == "Kafkaesque"
    assert guess_software(ApiVersions({}), has_our_setting=False) == "a Kafka"


def test_our_setting_is_one_that_our_broker_has_and_kafka_has_not() -> None:
    assert BROKER_SETTINGS[OUR_SETTING].ours
