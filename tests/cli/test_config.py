from __future__ import annotations

import json

from click.testing import CliRunner
from tests.cli.conftest import Run

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.main import cli
from kafkaesque.model.setting import Scope
from kafkaesque.model.settings import BROKER_SETTINGS, TOPIC_SETTINGS


def test_list_documents_every_setting() -> None:
    found = json.loads(CliRunner().invoke(cli, ["config", "list", "--json"]).output)
    assert {row["name"] for row in found["topic"]} == set(TOPIC_SETTINGS)
    assert {row["name"] for row in found["broker"]} == set(BROKER_SETTINGS)
    assert all(row["doc"] for rows in found.values() for row in rows)


def test_list_is_filtered_by_name() -> None:
    output = CliRunner().invoke(cli, ["config", "list", "topic", "--filter", "retention.ms"]).output
    assert "retention.ms" in output
    assert "cleanup.policy" not in output


def test_topic_settings_are_set_described_and_unset(command: Run, topic: str) -> None:
    assert (
        command("config", "set", "topic", topic, "retention.ms=60000").out == "retention.ms=60000\n"
    )
    rows = command("config", "describe", "topic", topic, "--json").json["configs"]
    row = next(row for row in rows if row["name"] == "retention.ms")
    assert (row["value"], row["source"]) == ("60000", "topic")
    assert row["doc"] == TOPIC_SETTINGS["retention.ms"].doc
    assert command("config", "unset", "topic", topic, "retention.ms").code == ExitCode.OK
    rows = command("config", "describe", "topic", topic, "--json").json["configs"]
    assert "retention.ms" not in [row["name"] for row in rows]


def test_all_shows_defaults_too(run: Run, topic: str) -> None:
    rows = run("config", "describe", "topic", topic, "--all", "--json").json["configs"]
    row = next(row for row in rows if row["name"] == "cleanup.policy")
    assert (row["value"], row["source"], row["default"]) == ("delete", "default", "delete")


def test_a_broker_is_described(run: Run, kafka: str) -> None:
    listed = run("config", "describe", "broker", "99")
    assert listed.code == ExitCode.NOT_FOUND
    known = listed.err.rpartition("the brokers are ")[2].split(",")[0].strip()
    rows = run("config", "describe", "broker", known, "--all", "--json").json["configs"]
    assert "log.retention.bytes" in [row["name"] for row in rows]


def test_invalid_value_is_rejected_with_the_brokers_message(run: Run, topic: str) -> None:
    outcome = run("config", "set", "topic", topic, "retention.ms=soon")
    assert outcome.code == ExitCode.FAILED
    assert "retention.ms" in outcome.err
    assert "fix: `kafkaesque config list`" in outcome.err


def test_default_in_hours_is_converted_to_the_unit_of_the_setting(command: Run, kafka: str) -> None:
    """log.retention.hours is a synonym of log.retention.ms in another unit: 168 ms would be wrong."""
    broker = command("config", "describe", "broker", "99").err.rpartition("the brokers are ")[2]
    known = broker.split(",")[0].strip()
    assert (
        command("config", "set", "broker", known, "log.retention.ms=604800001").code == ExitCode.OK
    )
    try:
        rows = command("config", "describe", "broker", known, "--json").json["configs"]
    finally:
        assert command("config", "unset", "broker", known, "log.retention.ms").code == ExitCode.OK
    row = next(row for row in rows if row["name"] == "log.retention.ms")
    assert (row["value"], row["default"]) == ("604800001", "604800000")


def test_every_setting_in_an_example_can_be_set() -> None:
    text = CliRunner().invoke(cli, ["config", "set", "--help"]).output
    examples = [line.split()[3:] for line in text.splitlines() if "kafkaesque config set" in line]
    assert {kind for kind, *_ in examples} == {"topic", "broker"}
    for kind, _name, *pairs in examples:
        settings = TOPIC_SETTINGS if kind == "topic" else BROKER_SETTINGS
        for name in (pair.partition("=")[0] for pair in pairs):
            assert settings[name].scope is not Scope.READ_ONLY
