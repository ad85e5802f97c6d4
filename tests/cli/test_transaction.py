from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import confluent_kafka as ck
import pytest
from tests.cli.conftest import Run

from kafkaesque.cli.failures import ExitCode


@pytest.fixture
def producer(kafka: str, topic: str, name: str) -> Iterator[ck.Producer]:
    """With a transaction open in partition 0 of `topic`."""
    made = ck.Producer({"bootstrap.servers": kafka, "transactional.id": name, "log_level": 0})
    made.init_transactions(30)
    made.begin_transaction()
    made.produce(topic, b"a", partition=0)
    assert made.flush(30) == 0
    yield made
    with suppress(ck.KafkaException):
        made.purge()


def test_transactions_are_listed_and_shown(
    run: Run, producer: ck.Producer, topic: str, name: str
) -> None:
    rows = {
        row["transactional_id"]: row
        for row in run("transaction", "ls", "--json").json["transactions"]
    }
    assert rows[name]["state"] == "Ongoing"
    assert run("transaction", "ls").out.splitlines()[0].startswith("TRANSACTIONAL-ID")
    listed = run("transaction", "ls", "--state", "CompleteAbort", "--json").json["transactions"]
    assert name not in [row["transactional_id"] for row in listed]
    shown = run("transaction", "show", name, "--json").json
    assert (shown["state"], shown["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert "Ongoing" in run("transaction", "show", name).out
    found = run("transaction", "ls", "--hanging", "--topic", topic, "--json")
    assert found.json == {"hanging": []}, "its coordinator knows it"
    place = run("transaction", "show", "--topic", topic, "--partition", "0", "--json").json
    assert [row["start_offset"] for row in place["open"]] == [0]


def test_abort_by_id_ends_the_transaction_and_fences_its_producer(
    run: Run, producer: ck.Producer, topic: str, name: str
) -> None:
    outcome = run("transaction", "abort", name, "--yes", "--json")
    assert outcome.code == ExitCode.OK, outcome
    assert outcome.json["producer_epoch"] > 0
    with pytest.raises(ck.KafkaException):
        producer.commit_transaction(30)
    place = run("transaction", "show", "--topic", topic, "--partition", "0", "--json").json
    assert place["open"] == []


def test_hanging_transaction_is_aborted_in_its_partition(
    run: Run, producer: ck.Producer, topic: str
) -> None:
    target = ("--topic", topic, "--partition", "0")
    assert run("transaction", "abort", *target, "--yes").code == ExitCode.OK
    assert run("transaction", "show", *target, "--json").json["open"] == []
    assert run("transaction", "abort", *target, "--yes").code == ExitCode.NOT_FOUND


def test_missing_transaction_is_not_found_and_wrong_usage_is_reported(run: Run, name: str) -> None:
    assert run("transaction", "show", name).code == ExitCode.NOT_FOUND
    assert run("transaction", "abort", name, "--yes").code == ExitCode.NOT_FOUND
    assert (
        run("transaction", "show", "--topic", name, "--partition", "0").code == ExitCode.NOT_FOUND
    )
    assert run("transaction", "show").code == ExitCode.USAGE
    assert run("transaction", "ls", "--topic", name).code == ExitCode.USAGE
    assert run("transaction", "ls", "--hanging", "--topic", name).code == ExitCode.NOT_FOUND
    assert (
        run("transaction", "show", name, "--topic", name, "--partition", "0").code == ExitCode.USAGE
    )
