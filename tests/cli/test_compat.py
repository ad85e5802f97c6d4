"""`kafkaesque compat` on clusters with features in use: ours and, if Java is installed, Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from tests.cli.conftest import Run

from kafkaesque.admin.compat.rules.apache_kafka import APACHE_APIS, APACHE_TOPIC_SETTINGS
from kafkaesque.admin.librdkafka_types import NewTopic
from kafkaesque.cli.failures import ExitCode
from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing import Broker, Cluster
from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.maven import JavaUnavailable
from kafkaesque.testing.wire_call import wire_call
from kafkaesque.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

FAST = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4"}  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with Broker() as broker:
        use_things(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def apache() -> Iterator[str]:
    try:
        kafka = ApacheKafka(settings=FAST, heap="512m")
        kafka.start()
    except JavaUnavailable as error:
        pytest.skip(f"no Apache Kafka to compare with: {error}")
    try:
        use_things(kafka.bootstrap_servers, "unclean.leader.election.enable")
        use_newer_group(kafka.bootstrap_servers)
        yield kafka.bootstrap_servers
    finally:
        kafka.stop()


def use_things(bootstrap: str, only_apache: str | None = None) -> None:
    """Compaction, zstd, a transaction, a static member."""
    quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
    config = {"cleanup.policy": "compact", "retention.ms": "5000"}
    if only_apache:
        config[only_apache] = "true"
    admin = AdminClient(quiet)
    for future in admin.create_topics([NewTopic("kept", 2, 1, config=config)]).values():
        future.result(30)
    producer = Producer({**quiet, "compression.type": "zstd", "transactional.id": "mover"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("kept", key="k", value="v" * 1000, partition=1)
    producer.commit_transaction(60)
    consumer = Consumer(
        {**quiet, "group.id": "readers", "group.instance.id": "one",
         "auto.offset.reset": "earliest", "session.timeout.ms": 45_000}
    )  # fmt: skip
    consumer.subscribe(["kept"])
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def use_newer_group(bootstrap: str) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "log_level": 0, "group.id": "newer",
         "group.protocol": "consumer", "auto.offset.reset": "earliest"}
    )  # fmt: skip
    consumer.subscribe(["kept"])
    assert consumer.poll(60) is not None
    consumer.commit(asynchronous=False)
    consumer.close()


def set_for_all_brokers(broker: Broker, name: str, value: str) -> None:
    """librdkafka rejects the empty name, which means all brokers."""
    resource = AlterConfigsResource(
        resource_type=4,
        resource_name="",
        configs=[AlterableConfig(name=name, config_operation=0, value=value)],
    )
    answer = wire_call(
        broker.bootstrap_servers,
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False),
        1,
        IncrementalAlterConfigsResponse,
        30,
    )
    assert answer.responses[0].error_code == ErrorCode.NONE


def verdicts(document: Any) -> dict[str, tuple[str, str]]:
    return {item["feature"]: (item["status"], item["text"]) for item in document["verdicts"]}


def test_features_in_use_are_found_and_apache_kafka_has_them(run: Run, ours: str) -> None:
    outcome = run("compat", "-b", ours, "--json")
    assert outcome.code == ExitCode.OK, outcome.out
    assert outcome.json["lacking"] == 0
    found = verdicts(outcome.json)
    assert {status for status, _ in found.values()} == {"ok"}
    assert found["compaction"][1] == "cleanup.policy=compact on 1: kept"
    assert found["topic setting"][1] == "retention.ms=5000 on 1: kept"
    assert found["compression"][1] == "zstd in 1: kept"
    assert found["transactions"][1] == "transactional ids 1: mover"
    assert found["static members"][1] == "in groups 1: readers"
    assert found["idempotent producers"][1] == "write 1: kept"
    assert "record format" in found
    assert "classic groups" in found


def test_cluster_wide_setting_is_found(run: Run) -> None:
    with Broker() as source, Broker() as target:
        set_for_all_brokers(source, "message.max.bytes", "5000")
        outcome = run(
            "compat", "-b", source.bootstrap_servers, "--target", target.bootstrap_servers
        )
    assert outcome.code == ExitCode.OK, outcome.out
    assert "message.max.bytes=5000" in outcome.out


def test_target_with_too_few_brokers_lacks_replicas(run: Run) -> None:
    with Cluster(3) as cluster, Broker() as single:
        cluster.create_topic("orders")
        outcome = run(
            "compat", "-b", cluster.bootstrap_servers, "--target", single.bootstrap_servers
        )
    assert outcome.code == ExitCode.FAILED
    assert "LACK  replicas" in outcome.out
    assert "do: give the target 3 brokers, or create 1: orders with fewer replicas" in outcome.out


def test_nothing_is_created_at_the_target(run: Run, ours: str) -> None:
    with Broker() as target:
        assert run("compat", "-b", ours, "--target", target.bootstrap_servers).code == ExitCode.OK
        assert run("topic", "list", "-b", target.bootstrap_servers, "--json").json["topics"] == []


def test_unreachable_target_is_named(run: Run, ours: str) -> None:
    outcome = run("compat", "-b", ours, "--target", "127.0.0.1:1")
    assert outcome.code == ExitCode.CANNOT_CONNECT
    assert "127.0.0.1:1" in outcome.err


@pytest.mark.timeout(300)
def test_known_version_ranges_match_a_real_apache_kafka(apache: str, run: Run) -> None:
    with BlockingConnection(parse_broker_address(apache), timeout_s=30) as connection:
        offered = connection.protocol.api_versions.apis
    assert {key: tuple(offered[key]) for key in APACHE_APIS} == {
        key: tuple(known) for key, known in APACHE_APIS.items()
    }
    configs = run("config", "describe", "topic", "kept", "--all", "-b", apache, "--json").json
    assert {item["name"] for item in configs["configs"]} == APACHE_TOPIC_SETTINGS


@pytest.mark.timeout(300)
def test_move_from_ours_to_apache_kafka_lacks_nothing(run: Run, ours: str, apache: str) -> None:
    outcome = run("compat", "-b", ours, "--target", apache)
    assert outcome.code == ExitCode.OK, outcome.out


@pytest.mark.timeout(300)
def test_move_from_apache_kafka_lists_features_that_we_lack(
    run: Run, ours: str, apache: str
) -> None:
    outcome = run("compat", "-b", apache, "--target", ours, "--json")
    assert outcome.code == ExitCode.FAILED
    found = verdicts(outcome.json)
    assert found["consumer groups"] == ("lacking", "1: newer; no ConsumerGroupHeartbeat")
    lacking = [item for item in outcome.json["verdicts"] if item["status"] == "lacking"]
    assert any("unclean.leader.election.enable" in item["text"] for item in lacking)
    assert all(item["fix"] for item in lacking)
    assert found["compaction"][0] == "ok"
