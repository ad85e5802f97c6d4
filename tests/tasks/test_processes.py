"""The commands as processes: kill -9 and recovery, orderly stop, what operators see."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.waiting import eventually, until

from kafkaesque.cli.main import cli
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Record
from kafkaesque.client.reading import read_stretch
from kafkaesque.lab.faults import tasks_probe as probe
from kafkaesque.lab.harness.service_process import ServiceProcess, kafkaesque
from kafkaesque.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.story

CALLS = 300


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings = {"flush": "never", "offsets.topic.num.partitions": 4,
                "group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}  # fmt: skip
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.bootstrap_servers


def worker(bootstrap: str, directory: Path) -> ServiceProcess:
    command = kafkaesque("tasks", "worker", "kafkaesque.lab.faults.tasks_probe:app", "--name", "w",
                         "-b", bootstrap, "-X", "session.timeout.ms=3000",
                         "--data", str(directory), "--end-with-stdin")  # fmt: skip
    return ServiceProcess("w", command, directory)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(cli, ["tasks", *arguments, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def numbers(log: KafkaLog, topic: str) -> Counter[int]:
    found: Counter[int] = Counter()
    async for batch in read_stretch(log, await log.admin.spans(topic)):
        found.update(int(record.value or b"-1") for record in batch)
    return found


def test_a_killed_worker_loses_nothing_and_repeats_no_effect(
    bootstrap: str, tmp_path: Path
) -> None:
    async def send() -> None:
        log = KafkaLog(bootstrap)
        await probe.prepare(log)
        async with probe.app.connect(log) as app:
            for n in range(CALLS):
                await app.send_records([probe.plain.record(n), probe.once.record(n)])

    async def wait(share: float) -> tuple[Counter[int], Counter[int]]:
        log = KafkaLog(bootstrap)

        async def enough() -> tuple[Counter[int], Counter[int]] | None:
            ran, once = await numbers(log, probe.RAN.name), await numbers(log, probe.ONCE.name)
            return (ran, once) if min(len(ran), len(once)) >= share * CALLS else None

        found = await until(enough, f"{share:.0%} of the calls ran")
        assert found is not None
        return found

    process = worker(bootstrap, tmp_path)
    process.start()
    asyncio.run(send())
    asyncio.run(wait(0.1))
    process.kill()
    process.start()
    ran, once = asyncio.run(wait(1.0))
    assert set(ran) == set(range(CALLS))
    assert once == dict.fromkeys(range(CALLS), 1)
    with urllib.request.urlopen(f"http://{process.facts['http']}/metrics") as answer:
        text = answer.read().decode()
    assert "# TYPE kafkaesque_tasks_done_total counter" in text
    with urllib.request.urlopen(f"http://{process.facts['http']}/readyz") as answer:
        assert answer.read() == b"ready\n"
    assert (tmp_path / "worker-w.json").exists()
    assert process.stop() == 0
    assert not (tmp_path / "worker-w.json").exists()
    assert "Traceback" not in (tmp_path / "w.log").read_text()


def test_an_operator_lists_shows_redrives_and_drops_dead_letters(
    bootstrap: str, tmp_path: Path
) -> None:
    async def send() -> None:
        log = KafkaLog(bootstrap)
        await probe.prepare(log)
        async with probe.app.connect(log) as app:
            await app.send_records([Record("tasks.probe", None, b"junk %d" % n) for n in range(3)])

    asyncio.run(send())
    process = worker(bootstrap, tmp_path)
    process.start()
    eventually(lambda: len(run("dlq", "ls", "probe", "-b", bootstrap)) >= 3, "three dead letters")
    assert process.stop() == 0
    letters = run("dlq", "ls", "probe", "-b", bootstrap, "--reason", "unreadable")
    first = letters[0]["id"]
    shown = run("dlq", "show", "probe", first, "-b", bootstrap)
    assert (shown["reason"], shown["value"][:4], shown["origin"]) == ("unreadable", "junk", first)
    unknown = ["tasks", "dlq", "drop", "probe", first, "tasks.probe/0/99", "-b", bootstrap]
    refused = CliRunner().invoke(cli, unknown)
    assert refused.exit_code == 4
    assert "probe has no dead letter tasks.probe/0/99" in refused.output
    assert run("dlq", "redrive", "probe", first, "-b", bootstrap) == {"redriven": 1, "ids": [first]}
    assert run("dlq", "drop", "probe", "--all", "-b", bootstrap)["dropped"] == 2
    assert run("dlq", "ls", "probe", "-b", bootstrap) == []
    missing = CliRunner().invoke(cli, ["tasks", "dlq", "show", "probe", first, "-b", bootstrap])
    assert missing.exit_code == 4
    nothing = CliRunner().invoke(cli, ["tasks", "dlq", "drop", "probe", "-b", bootstrap])
    assert nothing.exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["worker", "nowhere:app"], "no module 'nowhere'"),
        (["worker", "kafkaesque.lab.faults.tasks_probe"], "MODULE:NAME"),
        (["worker", "kafkaesque.lab.faults.tasks_probe:KEYS"], "is not an App"),
        (
            ["worker", "kafkaesque.lab.faults.tasks_probe:app", "--set", "concurency=1"],
            "did you mean concurrency",
        ),
        (
            ["worker", "kafkaesque.lab.faults.tasks_probe:app", "--set", "concurrency=0"],
            "at least 1",
        ),
        (["chat-jobs", "--set", "mail.tls=maybe"], "must be one of"),
        (["mail-catcher", "--cert", __file__], "must be used together"),
    ],
)
def test_wrong_usage_is_refused_with_a_message(arguments: list[str], text: str) -> None:
    result = CliRunner().invoke(cli, ["tasks", *arguments])
    assert result.exit_code == 2
    assert text in result.output
