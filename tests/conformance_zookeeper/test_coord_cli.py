"""`kafkaesque coord` as a person and a script use it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner, Result
from kazoo.client import KazooClient
from tests.conformance_zookeeper.conftest import NewClient
from tests.waiting import eventually

from kafkaesque.admin import zookeeper
from kafkaesque.cli.coord import coord

Run = Callable[..., Result]


@pytest.fixture
def run(address: str) -> Run:
    def invoke(*args: str, code: int = 0) -> Result:
        result = CliRunner().invoke(coord, [args[0], "-s", address, *args[1:]])
        assert result.exit_code == code, result.output
        return result

    return invoke


def test_node_is_created_read_changed_listed_and_deleted(run: Run, path: str) -> None:
    assert run("create", path + "/a/b", "1", "--parents").stdout == f"{path}/a/b: created\n"
    assert run("get", path + "/a/b").stdout == "1\n"
    assert run("set", path + "/a/b", "2").stdout == f"{path}/a/b: version 1\n"
    document = json.loads(run("get", path + "/a/b", "--json").stdout)
    assert (document["data"], document["stat"]["version"]) == ("2", 1)
    listed = json.loads(run("ls", path, "--recursive", "--json").stdout)["children"]
    assert [row["path"] for row in listed] == [path + "/a", path + "/a/b"]
    run("rm", path + "/a", code=1)
    assert run("rm", path + "/a", "--recursive").stdout == f"{path}/a: deleted\n"
    assert run("ls", path).stdout == ""


def test_a_sequential_node_returns_its_name(run: Run, path: str) -> None:
    made = json.loads(run("create", path + "/job-", "--sequential", "--json").stdout)
    assert made == {"path": path + "/job-0000000000"}


def test_stat_is_shown_with_the_data(run: Run, path: str) -> None:
    assert "version" in run("get", path, "--stat").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("get", "{}/no"), 4, "the node does not exist"),
        (("rm", "{}/no", "--recursive"), 4, "/no does not exist"),
        (("set", "{}", "x", "--version", "7"), 1, "another version"),
        (("create", "{}"), 1, "exists already"),
        (("rm", "/zookeeper"), 1, "cannot be deleted"),
        (("rm", "{}", "--recursive", "--version", "1"), 2, "either"),
    ],
)
def test_failures_name_their_cause(
    run: Run, path: str, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = run(*(argument.format(path) for argument in arguments), code=code)
    assert words in result.stderr


def test_unreachable_server_is_named() -> None:
    result = CliRunner().invoke(coord, ["ls", "-s", "127.0.0.1:1", "--timeout", "0.3"])
    assert result.exit_code == 3
    assert "no ZooKeeper answered at 127.0.0.1:1" in result.stderr


def test_sessions_are_shown_with_what_they_hold_and_without(
    run: Run, new_client: NewClient, path: str
) -> None:
    holder, idle = new_client(), new_client()
    holder.create(path + "/mine", ephemeral=True)
    result = run("sessions", "--json")
    document = json.loads(result.stdout)
    rows = {row["session"]: row for row in document["sessions"]}
    mine = rows[f"{holder.client_id[0]:#x}"]
    assert (mine["count"], mine["paths"]) == (1, [path + "/mine"])
    if document["complete"]:
        quiet = rows[f"{idle.client_id[0]:#x}"]
        host, port = idle._connection._socket.getsockname()
        assert (quiet["count"], quiet["paths"]) == (0, [])
        assert (quiet["client"], quiet["server"]) == (f"{host}:{port}", ",".join(server_of(idle)))
    else:
        # A server that does not permit `dump`.
        assert "only those that own ephemeral nodes" in result.stderr
    assert path + "/mine" in run("sessions").stdout


def test_a_list_without_dump_is_reported_as_incomplete(
    run: Run, client: KazooClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.create(path + "/mine", ephemeral=True)
    # The response of a ZooKeeper whose 4lw.commands.whitelist lacks `dump`.
    refusal = "dump is not executed because it is not in the whitelist.\n"
    monkeypatch.setattr(zookeeper, "_send_word", lambda *_: refusal)
    result = run("sessions", "--json")
    document = json.loads(result.stdout)
    assert document["complete"] is False
    assert [path + "/mine"] in [row["paths"] for row in document["sessions"]]
    assert "4lw.commands.whitelist" in result.stderr


def server_of(client: KazooClient) -> list[str]:
    return [f"{host}:{port}" for host, port in client.hosts]


def test_watch_reports_data_and_children_as_they_change(
    run: Run, client: KazooClient, path: str
) -> None:
    node = path + "/w"
    results: list[Result] = []
    watching = threading.Thread(
        target=lambda: results.append(run("watch", node, "--count", "5", "--json")), daemon=True
    )
    watching.start()
    client.create(node, b"0")
    client.create(node + "/kid")
    changes = itertools.count(1)

    def change_until_it_ended() -> bool:
        client.set(node, str(next(changes)).encode())
        return not watching.is_alive()

    eventually(change_until_it_ended)
    reports = [json.loads(line) for line in results[0].stdout.splitlines()]
    assert len(reports) == 5
    assert all(report["path"] == node for report in reports)
    assert {"path": node, "children": ["kid"]} in reports
    shown = [report["data"] for report in reports if report.get("data") is not None]
    assert shown == sorted(shown, key=int)


def test_elected_once_and_then_followed(run: Run, new_client: NewClient, path: str) -> None:
    node = path + "/cluster/master"
    holder = new_client()
    holder.create(node, b"somebody", ephemeral=True, makepath=True)
    answer = json.loads(run("elect", node, "--name", "me", "--once", "--json").stdout)
    assert answer == {"path": node, "name": "me", "role": "follower", "master": "somebody"}
    holder.stop()
    answer = json.loads(run("elect", node, "--name", "me", "--once", "--json").stdout)
    assert (answer["role"], answer["master"]) == ("master", "me")
    # It closed its session, and so removed its node.
    eventually(lambda: new_client().exists(node) is None)


def test_every_command_has_examples() -> None:
    for name, command in coord.commands.items():
        assert isinstance(command, click.Command)
        assert f"kafkaesque coord {name}" in (command.epilog or ""), name
