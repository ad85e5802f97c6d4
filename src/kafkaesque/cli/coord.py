"""`kafkaesque coord`: ls, get, set, create, rm, watch, sessions, elect, on any ZooKeeper."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.admin.errors import AdminError, ClusterUnreachable
from kafkaesque.admin.zookeeper import (
    ElectionCandidate,
    child_rows,
    connect,
    data_text,
    delete_node,
    session_rows,
    stat_row,
    watch_node,
)
from kafkaesque.cli.failures import CannotConnect, failure_of, usage
from kafkaesque.cli.options import examples, json_option
from kafkaesque.cli.render import Column, Screen, iso_time

if TYPE_CHECKING:
    from kazoo.client import KazooClient

F = TypeVar("F", bound=Callable[..., Any])

SERVER_DEFAULT = "127.0.0.1:2181"
SERVER_VARIABLE = "KAFKAESQUE_COORDINATION"

CHILD_COLUMNS = [
    Column("path", "Path", style="bold"),
    Column("children", "Children", "count"),
    Column("size_bytes", "Bytes", "bytes"),
    Column("version", "Version", "count"),
    Column("session", "Session"),
]
SESSION_COLUMNS = [
    Column("session", "Session", style="bold"),
    Column("timeout_ms", "Timeout ms", "count"),
    Column("client", "Client"),
    Column("server", "Server"),
    Column("count", "Nodes", "count"),
    Column("paths", "Paths"),
]

path_argument = click.argument("path", metavar="PATH")


def _stat_document(stat: Any) -> dict[str, Any]:
    """The JSON fields of a node's ZnodeStat, with readable times."""
    row = stat_row(stat)
    return {**row, "created": iso_time(row["created"]), "modified": iso_time(row["modified"])}


def server_options(function: F) -> F:
    """Add the options of every command here; pass a started client and a `Screen`."""

    @click.option(
        "-s",
        "--server",
        metavar="HOST:PORT[,...]",
        envvar=SERVER_VARIABLE,
        default=SERVER_DEFAULT,
        show_default=True,
        show_envvar=True,
        help="Address of the coordination service or a ZooKeeper; with /PATH at its end, PATH is the root.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0.1),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for a server; also the session timeout.",
    )
    @json_option
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        try:
            with connect(options.pop("server"), options.pop("timeout")) as client:
                return function(*args, client=client, **options)
        except ClusterUnreachable as error:
            raise CannotConnect(
                str(error),
                "start one with `kafkaesque broker --coordination-listen HOST:PORT`, or set its "
                f"address with -s or {SERVER_VARIABLE}",
            ) from None
        except AdminError as error:
            raise failure_of(error) from None

    return wrapper  # type: ignore[return-value]


@click.group()
def coord() -> None:
    """Read and change the coordination tree (ZooKeeper's znodes)."""


@coord.command(
    "ls",
    epilog=examples(
        "kafkaesque coord ls /",
        "kafkaesque coord ls /brokers --recursive",
        "kafkaesque coord ls / --json | jq -r '.children[].path'",
    ),
)
@click.argument("path", metavar="PATH", default="/")
@click.option("-R", "--recursive", is_flag=True, help="Also list all descendants.")
@server_options
def list_nodes(path: str, recursive: bool, client: KazooClient, screen: Screen) -> None:
    """List a node's children."""
    rows = child_rows(client, path, recursive)
    screen.document(
        {"path": path, "children": rows},
        lambda: screen.table(CHILD_COLUMNS, rows, f"{path} has no children"),
    )


@coord.command(
    epilog=examples(
        "kafkaesque coord get /clusterx/master",
        "kafkaesque coord get /clusterx/master --stat",
        "kafkaesque coord get /config --json | jq .stat.version",
    )
)
@path_argument
@click.option("--stat", "with_stat", is_flag=True, help="Also show versions, times and owner.")
@server_options
def get(path: str, with_stat: bool, client: KazooClient, screen: Screen) -> None:
    """Print a node's data."""
    data, stat = client.get(path)
    facts = _stat_document(stat)

    def show() -> None:
        screen.line(str(data_text(data)))
        if with_stat:
            screen.fields(list(facts.items()))

    screen.document({"path": path, "data": data_text(data), "stat": facts}, show)


@coord.command(
    "set",
    epilog=examples(
        "kafkaesque coord set /config 'retention=7d'",
        "kafkaesque coord set /config 'retention=9d' --version 3",
    ),
)
@path_argument
@click.argument("data")
@click.option(
    "--version", type=int, default=-1, help="Fail unless the node has this version.  [default: any]"
)
@server_options
def set_data(path: str, data: str, version: int, client: KazooClient, screen: Screen) -> None:
    """Replace a node's data."""
    stat = client.set(path, data.encode(), version=version)
    screen.document(
        {"path": path, "stat": _stat_document(stat)},
        lambda: screen.line(f"{path}: version {stat.version}"),
    )


@coord.command(
    epilog=examples(
        "kafkaesque coord create /config 'retention=7d'",
        "kafkaesque coord create /jobs/job- --sequential --parents",
    )
)
@path_argument
@click.argument("data", default="")
@click.option("--sequential", is_flag=True, help="Append the parent's next sequence number.")
@click.option("--parents", is_flag=True, help="Create missing parents.")
@server_options
def create(
    path: str, data: str, sequential: bool, parents: bool, client: KazooClient, screen: Screen
) -> None:
    """Create a persistent node."""
    made = client.create(path, data.encode(), sequence=sequential, makepath=parents)
    screen.document({"path": made}, lambda: screen.line(f"{made}: created"))


@coord.command(
    epilog=examples("kafkaesque coord rm /config", "kafkaesque coord rm /jobs --recursive")
)
@path_argument
@click.option("-R", "--recursive", is_flag=True, help="Also delete all descendants.")
@click.option(
    "--version", type=int, default=-1, help="Fail unless the node has this version.  [default: any]"
)
@server_options
def rm(path: str, recursive: bool, version: int, client: KazooClient, screen: Screen) -> None:
    """Delete a node."""
    if recursive and version != -1:
        raise usage("Use either --recursive or --version.")
    delete_node(client, path, version=version, recursive=recursive)
    screen.document({"path": path}, lambda: screen.line(f"{path}: deleted"))


@coord.command(
    epilog=examples(
        "kafkaesque coord watch /clusterx/master",
        "kafkaesque coord watch /brokers --count 3 --json",
    )
)
@path_argument
@click.option("-n", "--count", type=click.IntRange(min=1), help="Exit after this many reports.")
@server_options
def watch(path: str, count: int | None, client: KazooClient, screen: Screen) -> None:
    """Report a node's data and children now and at every change, until Ctrl-C."""
    ended = threading.Event()
    lock = threading.Lock()
    reported = 0

    def report(kind: str, value: Any) -> bool:
        nonlocal reported
        with lock:
            if ended.is_set():
                return False
            screen.document(
                {"path": path, kind: value},
                lambda: screen.line(f"{path} {kind}: {value if value is not None else '(absent)'}"),
            )
            reported += 1
            if count is not None and reported >= count:
                ended.set()
        return True

    watch_node(client, path, report)
    ended.wait()


@coord.command(epilog=examples("kafkaesque coord sessions", "kafkaesque coord sessions --json"))
@server_options
def sessions(client: KazooClient, screen: Screen) -> None:
    """Show all sessions: their clients, where they are connected, and their ephemeral nodes.

    ZooKeeper's protocol cannot list sessions; the four-letter word `dump` can. Our servers permit it; a
    ZooKeeper needs it in `4lw.commands.whitelist`. If no server permits it, only sessions that own
    ephemeral nodes are shown. List all servers with -s to see all connections.
    """
    rows, is_complete = session_rows(client)
    if not is_complete:
        screen.warn(
            "no server lists its sessions (4lw.commands.whitelist lacks `dump`): "
            "only those that own ephemeral nodes are shown"
        )
    screen.document(
        {"sessions": rows, "complete": is_complete},
        lambda: screen.table(SESSION_COLUMNS, rows, "no session owns an ephemeral node"),
    )


@coord.command(
    epilog=examples(
        "kafkaesque coord elect /clusterx/master",
        "kafkaesque coord elect /clusterx/master --name app-2",
    )
)
@path_argument
@click.option(
    "--name", default=socket.gethostname, help="Name of this candidate, stored as the node's data."
)
@click.option("--once", is_flag=True, help="Exit after the first result.")
@server_options
def elect(path: str, name: str, once: bool, client: KazooClient, screen: Screen) -> None:
    """Be a candidate in the leader election at PATH until Ctrl-C.

    One candidate is master, the others wait. The master owns the ephemeral node PATH and stores its name as the data. When its session ends, the
    node is deleted, and the first process to create it again is the next master.
    """
    candidate = ElectionCandidate(client, path, name)
    while True:
        role, master = client.retry(candidate.run)
        screen.document(
            {"path": path, "name": name, "role": role, "master": master},
            functools.partial(screen.line, f"{name}: {role}, master is {master}"),
        )
        if once:
            return
        candidate.wait_for_change()
