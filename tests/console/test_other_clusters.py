"""The console with three brokers, one of which is killed, and with a real Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from tests.console.running_console import PASSWORD, RunningConsole, read_as_group, write
from tests.console.test_pages import CHROMIUM, TIMEOUT_MS, Watched
from tests.console.test_pages import browser as browser
from tests.console.test_pages import shots as shots

from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.cluster_processes import ClusterProcesses
from kafkaesque.testing.maven import JavaUnavailable

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make clients"),
    pytest.mark.timeout(600),
]


@contextmanager
def watched_on(bootstrap: str, browser: Browser, shots: Path) -> Iterator[Watched]:
    config = ConsoleConfig(bootstrap=bootstrap, password=PASSWORD)
    with RunningConsole(config) as console:
        context = browser.new_context(viewport={"width": 1400, "height": 900})
        seen = Watched(context, console, shots)
        yield seen
        context.close()
        assert seen.complaints == []


def test_a_killed_broker_is_shown_live(tmp_path: Path, browser: Browser, shots: Path) -> None:
    with ClusterProcesses(3, tmp_path) as cluster:
        cluster.create_topic("orders", replicas={0: [0, 1, 2]})
        with watched_on(cluster.bootstrap_servers, browser, shots) as seen:
            page = seen.open("/")
            main = page.locator("main")
            expect(main).to_contain_text("All 3 brokers are up", timeout=TIMEOUT_MS)
            cluster.kill(2)
            expect(main).to_contain_text("broker 2 is down", timeout=TIMEOUT_MS, ignore_case=True)
            seen.shoot("killed")
            cluster.restart(2)
            expect(main).to_contain_text("All 3 brokers are up", timeout=TIMEOUT_MS)
            events = seen.open("/events").locator("main")
            expect(events).to_contain_text("broker 2", timeout=TIMEOUT_MS, ignore_case=True)


def test_apache_kafka_is_shown_without_pages_for_missing_features(
    browser: Browser, shots: Path
) -> None:
    kafka = ApacheKafka(settings={"offsets.topic.num.partitions": "1"}, heap="512m")
    try:
        kafka.start()
    except JavaUnavailable as error:
        pytest.skip(f"no Apache Kafka to compare with: {error}")
    try:
        servers = kafka.bootstrap_servers
        write(servers, "orders", [b'{"id": 1}', b'{"id": 2}'])
        read_as_group(servers, "billing", "orders", 1)
        with watched_on(servers, browser, shots) as seen:
            page = seen.open("/topics")
            expect(page.locator("main")).to_contain_text("orders", timeout=TIMEOUT_MS)
            links = page.locator("nav.menu a").evaluate_all(
                "found => found.map(one => one.getAttribute('href')).filter(one => one.length > 1)"
            )
            assert "/topics" in links
            for link in links:
                answer = page.goto(seen.address(link))
                assert answer is not None
                assert answer.status == 200, link
            page = seen.open("/groups")
            expect(page.locator("main")).to_contain_text("billing", timeout=TIMEOUT_MS)
            page = seen.open("/topics/orders?tab=messages")
            expect(page.locator("tr.record")).to_have_count(2, timeout=TIMEOUT_MS)
            seen.shoot("apache-kafka")
    finally:
        kafka.stop()
