"""The metrics after real requests."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from tests.stories.wire_client import WireClient

from kafkaesque.testing.broker_process import BrokerProcess


def scrape(broker: BrokerProcess) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=10) as page:
        families = list(text_string_to_metric_families(page.read().decode()))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_requests_logs_and_groups_are_counted(tmp_path: Path) -> None:
    from confluent_kafka import Consumer

    settings = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 2}
    with BrokerProcess(tmp_path, settings) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            client.create_topic("t")
            for _ in range(3):
                client.produce("t", [b"a", b"b"])
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["t"])
        messages = consumer.consume(2, 20)
        consumer.commit(message=messages[1], asynchronous=False)
        figures = scrape(broker)
        partition = (("partition", "0"), ("topic", "t"))
        assert figures["kafkaesque_records_produced_total", ()] == 6
        assert figures["kafkaesque_request_seconds_count", (("api", "produce"),)] == 3
        assert figures["kafkaesque_high_watermark", partition] == 6
        assert figures["kafkaesque_log_size_bytes", partition] > 0
        assert figures["kafkaesque_groups", (("state", "Stable"),)] == 1
        assert figures["kafkaesque_group_members", ()] == 1
        assert figures["kafkaesque_group_lag", (("group", "g"), *partition)] == 4
        assert figures["kafkaesque_connections", ()] >= 1
        assert figures["kafkaesque_log_syncs_total", ()] >= 1
        names = {name for name, _ in figures}
        assert "kafkaesque_event_loop_delay_seconds_bucket" in names
        software = [
            dict(labels)["name"] for name, labels in figures if name == "kafkaesque_clients_total"
        ]
        assert "confluent-kafka-python" in software
        consumer.close()


def test_health_and_readiness_say_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        for page in ("healthz", "readyz"):
            url = f"http://{broker.http_address}/{page}"
            with urllib.request.urlopen(url, timeout=10) as answer:
                assert answer.status == 200
