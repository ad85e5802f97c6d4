from __future__ import annotations

import pytest
from tests.cli.conftest import Run, background, read_line

from kafkaesque.cli.failures import ExitCode
from kafkaesque.cli.group import parse_target


@pytest.fixture
def group(run: Run, topic: str, name: str) -> str:
    """A group without members that has read 3 of 5 records in partition 0 of `topic`."""
    run("produce", topic, "-p", "0", stdin="a\nb\nc\nd\ne\n")
    group = f"{name}-group"
    assert run("consume", topic, "--group", group, "-n", "3").code == ExitCode.OK
    return group


def test_a_group_is_listed_with_its_state(run: Run, group: str) -> None:
    rows = {row["group"]: row for row in run("group", "list", "--json").json["groups"]}
    assert (rows[group]["state"], rows[group]["members"]) == ("empty", 0)
    assert run("group", "list").out.splitlines()[0].split()[:2] == ["GROUP", "STATE"]


def test_describe_shows_committed_end_and_lag(command: Run, group: str, topic: str) -> None:
    (described,) = command("group", "describe", group, "--json").json["groups"]
    row = next(row for row in described["offsets"] if row["partition"] == 0)
    assert (row["topic"], row["committed"], row["end"], row["lag"]) == (topic, 3, 5, 2)
    assert described["lag"] == 2
    assert "lag          2" in command("group", "describe", group).out


def test_a_missing_group_is_not_found(run: Run, name: str) -> None:
    assert run("group", "describe", name).code == ExitCode.NOT_FOUND
    assert run("group", "delete", name, "--yes").code == ExitCode.NOT_FOUND


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (["--to", "earliest"], 0),
        (["--to", "latest"], 5),
        (["--to", "4"], 4),
        (["--to", "400"], 5),
        (["--shift", "-1"], 2),
        (["--to", "2000-01-01"], 0),
    ],
)
def test_reset_only_shows_the_plan_without_execute(
    run: Run, group: str, topic: str, where: list[str], expected: int
) -> None:
    command = ["group", "reset", group, "--topic", f"{topic}:0", *where, "--json"]
    plan = run(*command)
    assert plan.code == ExitCode.OK, plan.err
    assert plan.json["executed"] is False
    assert [(row["current"], row["new"]) for row in plan.json["changes"]] == [(3, expected)]
    assert committed(run, group) == 3
    assert run(*command, "--execute").json["executed"] is True
    assert committed(run, group) == expected


def committed(run: Run, group: str) -> int:
    (described,) = run("group", "describe", group, "--json").json["groups"]
    return next(row["committed"] for row in described["offsets"] if row["partition"] == 0)


def test_reset_prepares_a_group_that_does_not_exist_yet(run: Run, topic: str, name: str) -> None:
    run("produce", topic, "-p", "0", stdin="a\nb\n")
    fresh = f"{name}-fresh"
    assert (
        run("group", "reset", fresh, "--topic", topic, "--to", "latest", "--execute").code
        == ExitCode.OK
    )
    assert run("consume", topic, "--group", fresh).out == ""


def test_a_group_with_members_is_described_and_not_reset(
    run: Run, topic: str, kafka: str, name: str
) -> None:
    run("produce", topic, "-p", "0", stdin="a\n")
    with background(kafka, "consume", topic, "--group", name, "-f") as process:
        assert read_line(process) == b"a\n"
        (described,) = run("group", "describe", name, "--json").json["groups"]
        refused = run("group", "reset", name, "--all-topics", "--to", "earliest", "--execute")
        process.terminate()
        process.wait(30)
    assert described["state"] == "stable"
    (member,) = described["members"]
    assert member["client_id"] == "kafkaesque-cli"
    assert sorted(member["partitions"]) == [f"{topic}-0", f"{topic}-1"]
    assert refused.code == ExitCode.FAILED
    assert "in use by 1 member" in refused.err


def test_delete_offsets_removes_the_offset_of_a_partition(run: Run, group: str, topic: str) -> None:
    assert run("group", "delete-offsets", group, "--topic", f"{topic}:0").code == ExitCode.OK
    (described,) = run("group", "describe", group, "--json").json["groups"]
    assert 0 not in [row["partition"] for row in described["offsets"]]


def test_a_deleted_group_is_gone(command: Run, group: str) -> None:
    assert command("group", "delete", group).code == ExitCode.FAILED
    assert command("group", "delete", group, "--yes").out == f"{group}: deleted\n"
    assert command("group", "describe", group).code == ExitCode.NOT_FOUND


def test_group_of_a_deleted_topic_is_still_described(run: Run, group: str, topic: str) -> None:
    run("topic", "delete", topic, "--yes")
    outcome = run("group", "describe", group)
    assert outcome.code in (ExitCode.OK, ExitCode.NOT_FOUND), outcome.err


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", ("orders", [])), ("orders:0", ("orders", [0])), ("a.b:1,2", ("a.b", [1, 2]))],
)
def test_target_is_a_topic_with_optional_partitions(
    text: str, expected: tuple[str, list[int]]
) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["orders:", "orders:x", ":1", "orders:1,"])
def test_a_bad_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC"):
        parse_target(text)
