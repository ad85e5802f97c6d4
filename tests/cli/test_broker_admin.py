"""`kafkaesque broker-admin` against three brokers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkaesque.cli import main
from kafkaesque.cli.failures import ExitCode
from kafkaesque.testing import Cluster
from kafkaesque.testing.waiting import poll_until

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        cluster.create_topic("t", 3)
        cluster.create_topic("u", replication_factor=2)
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.mend()


@pytest.fixture
def run(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    def invoke(*arguments: str) -> tuple[int, str, str]:
        code = main.run(["broker-admin", *arguments, "-b", cluster.bootstrap_servers])
        out, err = capsys.readouterr()
        return code, out, err

    return invoke


def answer(run: Run, *arguments: str) -> Any:
    code, out, err = run(*arguments, "--json")
    assert code == ExitCode.OK, err
    return json.loads(out)


def test_brokers_are_listed_with_leader_and_replica_counts(run: Run, cluster: Cluster) -> None:
    rows = answer(run, "brokers")["brokers"]
    assert [row["id"] for row in rows] == [0, 1, 2]
    assert [f"{row['host']}:{row['port']}" for row in rows] == [
        cluster.address(n) for n in (0, 1, 2)
    ]
    assert [row["id"] for row in rows if row["controller"]] == [cluster.controller]
    assert sum(row["leads"] for row in rows) == 4
    assert sum(row["replicas"] for row in rows) == 3 * 3 + 2
    assert sum(row["behind"] for row in rows) == 0


def test_dead_broker_is_not_listed_and_its_replicas_are_not_in_sync(
    run: Run, cluster: Cluster
) -> None:
    cluster.kill(2)
    poll_until(
        lambda: [row["id"] for row in answer(run, "brokers")["brokers"]] == [0, 1] or None,
        lambda: "two brokers",
        30,
    )
    code, out, _ = run("brokers")
    assert code == ExitCode.OK
    assert out.splitlines()[0].split() == [
        *("ID", "HOST", "PORT", "RACK", "CONTROLLER", "LEADS", "REPLICAS", "NOT-IN-SYNC")
    ]


def test_quorum_shows_leader_and_voters(run: Run, cluster: Cluster) -> None:
    quorum = answer(run, "quorum")
    assert quorum["leader"] == cluster.controller
    roles = {member["id"]: member["role"] for member in quorum["members"]}
    assert sorted(roles) == [0, 1, 2]
    assert [number for number, role in roles.items() if role == "leader"] == [cluster.controller]
    assert all(member["lag"] == 0 for member in quorum["members"])
    code, out, _ = run("quorum")
    assert (code, out.split()[:2]) == (ExitCode.OK, ["Leader", str(cluster.controller)])


def test_preferred_leaders_are_elected(run: Run, cluster: Cluster) -> None:
    leader = cluster.leader_of("t", 0)
    assert leader is not None
    cluster.restart(leader)
    cluster.wait_until_in_sync()
    assert cluster.leader_of("t", 0) != leader
    rows = answer(run, "elect", "t")["partitions"]
    assert [(row["topic"], row["partition"]) for row in rows] == [("t", 0), ("t", 1), ("t", 2)]
    assert {row["result"] for row in rows} <= {"elected", "as it should be"}
    assert cluster.leader_of("t", 0) == leader
    assert run("elect", "t:0")[1] == "t:0: as it should be\n"
    assert run("elect", "--all")[0] == ExitCode.OK


def test_partition_moves_and_the_move_is_shown_until_it_is_done(run: Run, cluster: Cluster) -> None:
    before = set(cluster.in_sync("u"))
    (target,) = {0, 1, 2} - before
    wanted = [target, min(before)]
    code, out, _ = run("reassign", f"u:0={wanted[0]},{wanted[1]}")
    assert (code, out) == (ExitCode.OK, "u:0: begun\n")
    rows = answer(run, "reassignments")["reassignments"]
    assert all(row["adding"] == [target] for row in rows)
    poll_until(
        lambda: answer(run, "reassignments")["reassignments"] == [] or None, lambda: "done", 30
    )
    assert set(cluster.in_sync("u")) == set(wanted)
    assert run("reassignments") == (ExitCode.OK, "", "no reassignments in progress\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("elect",), ExitCode.USAGE, "List topics or partitions, or use --all"),
        (("elect", "t", "--all"), ExitCode.USAGE, "List topics or partitions, or use --all"),
        (("elect", "t:x"), ExitCode.USAGE, "'t:x' is not TOPIC or TOPIC:PARTITION"),
        (("elect", "nope"), ExitCode.NOT_FOUND, "no topic 'nope'"),
        (("elect", "t:9"), ExitCode.NOT_FOUND, "UNKNOWN_TOPIC_OR_PARTITION"),
        (("reassign",), ExitCode.USAGE, "List what to move"),
        (("reassign", "t=1"), ExitCode.USAGE, "'t' is not TOPIC:PARTITION"),
        (("reassign", "t:0"), ExitCode.USAGE, "is not TOPIC:PARTITION=BROKER"),
        (("reassign", "t:0=a"), ExitCode.USAGE, "not a list of broker ids"),
        (("reassign", "t:0=0,9"), ExitCode.FAILED, "no such broker"),
        (("reassign", "--cancel", "t:0"), ExitCode.FAILED, "NO_REASSIGNMENT_IN_PROGRESS"),
        (
            ("unregister", "9", "--yes"),
            ExitCode.NOT_FOUND,
            "Broker ID 9 is not currently registered",
        ),
        (("unregister", "9"), ExitCode.FAILED, "add --yes"),
    ],
)
def test_impossible_request_is_explained(
    run: Run, arguments: tuple[str, ...], code: int, text: str
) -> None:
    done, _, err = run(*arguments)
    assert done == code
    assert text in err


def test_lost_broker_is_unregistered(run: Run, cluster: Cluster) -> None:
    """Runs last: only wiping the broker could undo it."""
    cluster.kill(2)
    assert answer(run, "unregister", "2", "--yes") == {"broker": 2, "result": "unregistered"}
    poll_until(lambda: len(answer(run, "quorum")["members"]) == 2 or None, lambda: "two voters", 30)
