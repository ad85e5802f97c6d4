"""The processes that `up` runs, their order and their addresses."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kafkaesque.cli.up_welcome import as_json, as_text
from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.up.brokers import broker_services
from kafkaesque.up.plan import Platform, spark_jobs, stages
from kafkaesque.up.platform import UpOptions, plan_brokers
from kafkaesque.up.ports import choose_ports
from kafkaesque.up.supervisor import ProcessState, Service

HERE = Path("/data")


def platform(**changes: str) -> Platform:
    addresses = {"bootstrap": "kafka1:9092", "zookeeper": "zk1:2181", **changes}
    return Platform(data=HERE, ports=choose_ports(9092, {}, ReservedPorts()), **addresses)


def everything(**changes: str) -> list[Service]:
    services = [service for stage in stages(platform(**changes), source=True) for service in stage]
    return [*services, *spark_jobs(platform(**changes), all_jobs=False)]


def value_of(service: Service, option: str) -> str:
    words = list(service.command)
    return words[words.index(option) + 1]


@pytest.mark.parametrize(
    ("engines", "brokers"),
    [
        ((), 3),
        (("spark",), 3),
        (("kafka",), 1),
        (("zookeeper",), 3),
        (("kafka", "zookeeper"), 0),
    ],
)
def test_with_other_engines_only_the_needed_brokers_start(
    engines: tuple[str, ...], brokers: int
) -> None:
    options = UpOptions(
        data=HERE, brokers=3, port=9092, http_port=9644,
        engines=dict.fromkeys(engines, "elsewhere:1"), has_services=True, has_source=True,
        has_spark=True, has_all_jobs=False,
    )  # fmt: skip
    assert len(plan_brokers(options, {}, ReservedPorts())) == brokers


def test_every_service_is_planned() -> None:
    assert {service.name for service in everything()} == {
        "chat-0", "chat-1", "mail", "console", "source", "gateway-0", "gateway-1", "tasks-0",
        "tasks-1", "chat-web", "pipeline",
    }  # fmt: skip


def test_services_get_the_addresses_of_kafka_and_zookeeper() -> None:
    services = {service.name: service for service in everything()}
    connected = [name for name in services if name not in ("mail", "chat-web")]
    for name in connected:
        assert value_of(services[name], "--bootstrap-server") == "kafka1:9092", name
    assert value_of(services["console"], "--coordination") == "zk1:2181"
    assert value_of(services["tasks-0"], "--zookeeper-connect") == "zk1:2181"
    assert "zookeeper.connect=zk1:2181" in services["gateway-0"].command
    assert value_of(services["pipeline"], "--master") == "local[2]"
    [spark] = spark_jobs(platform(spark_master="spark://host:7077"), all_jobs=False)
    assert value_of(spark, "--master") == "spark://host:7077"


def test_nothing_is_stopped_before_what_needs_it(free: ReservedPorts) -> None:
    """Later stages stop first: clients drain from gateways while back ends and brokers still run."""
    stage = {service.name: service.stage for service in everything()}
    brokers = broker_services(HERE, 9092, 3, (), free)
    assert {broker.stage for broker in brokers} == {0}
    assert all(number > 0 for number in stage.values())
    assert stage["gateway-0"] > stage["chat-0"]
    assert stage["tasks-0"] > stage["mail"]
    assert stage["pipeline"] == max(stage.values())


def test_all_jobs_are_streams_and_an_archive_that_is_checked() -> None:
    pipeline, archive = spark_jobs(platform(), all_jobs=True)
    assert {"social", "chat"} <= set(pipeline.command)
    jobs = [shlex.split(word) for word in archive.command if word.startswith("pipeline run")]
    assert [job[2] for job in jobs] == ["archive", "quality"]
    assert "--once" in jobs[0]
    # A starting Spark sweeps the scratch files in its directory.
    assert value_of(pipeline, "--data") != jobs[0][jobs[0].index("--data") + 1]


@pytest.mark.parametrize("missing", ["console", "chat-web", "gateway-1"])
def test_address_of_a_service_that_does_not_run_is_not_shown(missing: str) -> None:
    addresses = {
        "console": "http://127.0.0.1:8080",
        "chat-web": "http://127.0.0.1:8090",
        "gateway-1": "127.0.0.1:7010",
    }
    services = everything()
    for service in services:
        service.state = ProcessState.RUNNING
    whole = as_text(services, platform(), spark_follows=False)
    assert "Kafkaesque is up.\n" in whole
    assert all(address in whole for address in addresses.values())
    [failed] = [service for service in services if service.name == missing]
    failed.state = ProcessState.EXITED
    text = as_text(services, platform(), spark_follows=False)
    assert f"up, except {missing}, which will be restarted" in text
    assert str(failed.log) in text
    assert addresses[missing] not in text
    assert '"state": "exited"' in as_json(services, platform())
