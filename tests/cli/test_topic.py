from __future__ import annotations

import pytest
from tests.cli.conftest import Run

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.render import Screen
from kafkaesque.cli.topic import show_descriptions


def test_a_created_topic_is_listed_described_and_deleted(command: Run, name: str) -> None:
    created = command("topic", "create", name, "-p", "3", "-c", "retention.ms=3600000", "--json")
    assert (created.code, created.json) == (
        ExitCode.OK,
        {"topics": [{"topic": name, "result": "created"}]},
    )
    listed = command("topic", "list", "--json").json["topics"]
    assert {"topic": name, "partitions": 3, "replication_factor": 1} in listed
    (described,) = command("topic", "describe", name, "--json").json["topics"]
    assert described["partition_count"] == 3
    assert described["configs"] == {"retention.ms": "3600000"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert all(row["records"] == 0 for row in described["partitions"])
    assert command("topic", "delete", name, "--yes").out == f"{name}: deleted\n"
    assert command("topic", "describe", name).code == ExitCode.NOT_FOUND


def test_an_existing_topic_fails_unless_tolerated(run: Run, topic: str) -> None:
    again = run("topic", "create", topic)
    assert again.code == ExitCode.FAILED
    assert "already exists" in again.err
    tolerated = run("topic", "create", topic, "--if-not-exists", "--json")
    assert (tolerated.code, tolerated.json["topics"][0]["result"]) == (ExitCode.OK, "exists")


def test_one_invalid_name_does_not_prevent_the_others(run: Run, name: str) -> None:
    outcome = run("topic", "create", name, "bad/name", "--json")
    assert outcome.code == ExitCode.FAILED
    results = {row["topic"]: row["result"] for row in outcome.json["topics"]}
    assert results == {name: "created", "bad/name": "failed"}


def test_validate_only_creates_nothing(run: Run, name: str) -> None:
    assert run("topic", "create", name, "--validate-only").out == f"{name}: valid\n"
    assert run("topic", "describe", name).code == ExitCode.NOT_FOUND


def test_error_of_a_missing_topic_has_the_command_that_creates_it(command: Run, name: str) -> None:
    outcome = command("topic", "describe", name)
    assert (outcome.code, outcome.out) == (ExitCode.NOT_FOUND, "")
    assert f"kafkaesque topic create {name}" in outcome.err


def test_alter_adds_partitions_and_changes_settings(run: Run, topic: str) -> None:
    changed = run("topic", "alter", topic, "-p", "4", "--set", "max.message.bytes=2000")
    assert changed.code == ExitCode.OK, changed.err
    (described,) = run("topic", "describe", topic, "--json").json["topics"]
    assert described["partition_count"] == 4
    assert described["configs"] == {"max.message.bytes": "2000"}
    assert run("topic", "alter", topic, "--unset", "max.message.bytes").code == ExitCode.OK
    (described,) = run("topic", "describe", topic, "--json").json["topics"]
    assert described["configs"] == {}


def test_fewer_partitions_and_unknown_settings_are_refused(run: Run, topic: str) -> None:
    assert run("topic", "alter", topic, "--partitions", "1").code == ExitCode.FAILED
    refused = run("topic", "alter", topic, "--set", "no.such.setting=1")
    assert refused.code == ExitCode.FAILED
    assert "no.such.setting" in refused.err


def test_delete_without_a_terminal_requires_yes(run: Run, topic: str) -> None:
    outcome = run("topic", "delete", topic)
    assert outcome.code == ExitCode.FAILED
    assert "--yes" in outcome.err
    assert run("topic", "describe", topic).code == ExitCode.OK


def test_delete_records_moves_the_earliest_offset(run: Run, topic: str) -> None:
    run("produce", topic, "-p", "0", stdin="a\nb\nc\n")
    moved = run("topic", "delete-records", topic, "--before-offset", "0:2", "--yes", "--json")
    assert moved.json["partitions"] == [{"partition": 0, "earliest": 2, "latest": 3}]
    assert run("consume", topic).out == "c\n"
    run("topic", "delete-records", topic, "--all", "--yes")
    assert run("consume", topic).out == ""


def test_details_count_records(run: Run, topic: str) -> None:
    run("produce", topic, stdin="a\nb\nc\n")
    lines = run("topic", "list", "--details").out.splitlines()
    assert lines[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "RECORDS"]
    assert [topic, "2", "1", "3"] in [line.split() for line in lines]


def test_internal_topics_are_listed_with_internal(run: Run, topic: str, name: str) -> None:
    run("produce", topic, stdin="a\n")
    run("consume", topic, "--group", name)
    plain = [row["topic"] for row in run("topic", "list", "--json").json["topics"]]
    everything = [
        row["topic"] for row in run("topic", "list", "--internal", "--json").json["topics"]
    ]
    assert not [item for item in plain if item.startswith("__")]
    assert "__consumer_offsets" in everything


def test_partition_without_leader_has_no_offsets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = {"partition": 0, "leader": None, "replicas": [1, 2], "isr": [], "earliest": None}
    topic = {
        "topic": "orders",
        "id": "AAAA",
        "internal": True,
        "partition_count": 1,
        "replication_factor": 2,
        "records": 0,
        "configs": {"a": "1", "b": "2"},
        "partitions": [partition],
    }
    show_descriptions(Screen(as_json=False), [topic])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders"
    assert "config      a=1" in lines
    assert "internal    yes" in lines
    assert lines[-1].split() == ["0", "-", "1,2", "-", "-", "-", "-"]
