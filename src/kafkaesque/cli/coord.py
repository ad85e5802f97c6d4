"""`kafkaesque coord`: ls, get, set, create, rm, watch, sessions, elect, on any ZooKeeper."""

from __future__ import annotations

import functools
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkaesque.cli.coord_sessions import SESSION_COLUMNS, session_rows
from kafkaesque.cli.coord_view import (
    CHILD_COLUMNS,
    child_rows,
    content,
    stat_document,
)
from kafkaesque.cli.failures import CannotConnect, Failure, NotFound, usage
from kafkaesque.cli.options import examples, json_option
from kafkaesque.cli.render import Screen

if TYPE_CHECKING:
    from kazoo.client import KazooClient

F = TypeVar("F", bound=Callable[..., Any])

SERVER_DEFAULT = "127.0.0.1:2181"
SERVER_VARIABLE = "KAFKAESQUE_COORDINATION"

path_argument = click.argument("path", metavar="PATH")


@contextmanager
def connected(server: str, timeout_s: float) -> Iterator[KazooClient]:
    """A kazoo client while the block runs; its exceptions become our failures."""
    try:
        from kazoo import exceptions
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError
    except ImportError:
        raise Failure(
            "the ZooKeeper client `kazoo` is not installed", "pip install kazoo"
        ) from None
    client = KazooClient(hosts=server, timeout=timeout_s)
    try:
        client.start(timeout=timeout_s)
        yield client
    except KazooTimeoutError:
        raise CannotConnect(
            f"no ZooKeeper answers at {server}",
            f"start one with --coordination-listen, or name it by -s or {SERVER_VARIABLE}",
        ) from None
    except exceptions.NoNodeError:
        raise NotFound(
            "there is no such node", "`kafkaesque coord ls` shows those that there are"
        ) from None
    except exceptions.KazooException as error:
        raise Failure(_explain(error)) from None
    finally:
        client.stop()
        client.close()


def _explain(error: Exception) -> str:
    reasons = {
        "NodeExistsError": "the node exists already",
        "NotEmptyError": "the node has children: add --recursive",
        "BadVersionError": "the node has another version: somebody changed it",
        "NoAuthError": "the node's access list does not allow it",
        "BadArgumentsError": "that is not a path, or the node must stay",
        "NoChildrenForEphemeralsError": "an ephemeral node cannot have children",
        "ConnectionLoss": "the connection broke; it is not known whether it was done",
    }
    name = type(error).__name__
    return reasons.get(name, f"{name}: {error}")


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
        help="Address of the ZooKeeper, ours or any; an appended path is the root.",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0.1),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="Give up after this long without a server; also the session's timeout.",
    )
    @json_option
    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        with connected(options.pop("server"), options.pop("timeout")) as client:
            return function(*args, client=client, **options)

    return wrapper  # type: ignore[return-value]


@click.group()
def coord() -> None:
    """Look into and change the coordination tree (ZooKeeper's znodes)."""


@coord.command(
    "ls",
    epilog=examples(
        "kafkaesque coord ls /",
        "kafkaesque coord ls /brokers --recursive",
        "kafkaesque coord ls / --json | jq -r '.children[].path'",
    ),
)
@click.argument("path", metavar="PATH", default="/")
@click.option("-R", "--recursive", is_flag=True, help="All nodes below, too.")
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
@click.option("--stat", "with_stat", is_flag=True, help="Also versions, times and owner.")
@server_options
def get(path: str, with_stat: bool, client: KazooClient, screen: Screen) -> None:
    """Print a node's data."""
    data, stat = client.get(path)
    facts = stat_document(stat)

    def show() -> None:
        screen.line(str(content(data)))
        if with_stat:
            screen.fields(list(facts.items()))

    screen.document({"path": path, "data": content(data), "stat": facts}, show)


@coord.command(
    "set",
    epilog=examples(
        "kafkaesque coord set /config 'retention=7d'",
        "kafkaesque coord set /config 'retention=9d' --version 3",
    ),
)
@path_argument
@click.argument("data")
@click.option("--version", type=int, default=-1, help="Only if the node has this version.")
@server_options
def set_data(path: str, data: str, version: int, client: KazooClient, screen: Screen) -> None:
    """Replace a node's data."""
    stat = client.set(path, data.encode(), version=version)
    screen.document(
        {"path": path, "stat": stat_document(stat)},
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
@click.option("--sequential", is_flag=True, help="Append the next number of the parent.")
@click.option("--parents", is_flag=True, help="Make missing parents.")
@server_options
def create(
    path: str, data: str, sequential: bool, parents: bool, client: KazooClient, screen: Screen
) -> None:
    """Create a node that stays. (Ephemeral ones go with their session: see `elect`.)"""
    made = client.create(path, data.encode(), sequence=sequential, makepath=parents)
    screen.document({"path": made}, lambda: screen.line(f"{made}: created"))


@coord.command(
    epilog=examples("kafkaesque coord rm /config", "kafkaesque coord rm /jobs --recursive")
)
@path_argument
@click.option("-R", "--recursive", is_flag=True, help="With everything below it.")
@click.option("--version", type=int, default=-1, help="Only if the node has this version.")
@server_options
def rm(path: str, recursive: bool, version: int, client: KazooClient, screen: Screen) -> None:
    """Delete a node."""
    if recursive and version != -1:
        raise usage("Give either --recursive or --version.")
    if recursive and client.exists(path) is None:
        # kazoo takes a missing node for one that is deleted already.
        raise NotFound(f"there is no node {path}")
    client.delete(path, version=version, recursive=recursive)
    screen.document({"path": path}, lambda: screen.line(f"{path}: deleted"))


@coord.command(
    epilog=examples(
        "kafkaesque coord watch /clusterx/master",
        "kafkaesque coord watch /brokers --count 3 --json",
    )
)
@path_argument
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many reports.")
@server_options
def watch(path: str, count: int | None, client: KazooClient, screen: Screen) -> None:
    """Report a node's data and children now and at every change, until Ctrl-C."""
    ended = threading.Event()
    lock = threading.Lock()
    reported = 0

    def report(kind: str, value: Any) -> bool:
        """False ends the watch that called."""
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

    watched_czxid = 0

    def on_data(data: bytes | None, stat: Any) -> bool:
        nonlocal watched_czxid
        goes_on = report("data", None if data is None else content(data))
        if goes_on and stat is not None and stat.czxid != watched_czxid:
            # A watch of children ends with its node: a new node needs a new one.
            watched_czxid = stat.czxid
            client.ChildrenWatch(path, lambda names: report("children", sorted(names)))
        return goes_on

    client.DataWatch(path, on_data)
    ended.wait()


@coord.command(epilog=examples("kafkaesque coord sessions", "kafkaesque coord sessions --json"))
@server_options
def sessions(client: KazooClient, screen: Screen) -> None:
    """Show all sessions: their clients, where they are connected, and their ephemeral nodes.

    The protocol has no list of sessions; the servers' four-letter word `dump` has. A ZooKeeper permits
    it by `4lw.commands.whitelist`, ours does. Where none permits it, only sessions that own ephemeral
    nodes can be found. Name all servers by -s to see all connections.
    """
    rows, is_complete = session_rows(client)
    if not is_complete:
        screen.warn(
            "no server lists its sessions (4lw.commands.whitelist lacks `dump`): "
            "these are only those that own ephemeral nodes"
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
@click.option("--name", default=socket.gethostname, help="What to write into the node.")
@click.option("--once", is_flag=True, help="End after the first word of who is master.")
@server_options
def elect(path: str, name: str, once: bool, client: KazooClient, screen: Screen) -> None:
    """Take part in an election for PATH until Ctrl-C: one is master, the others wait.

    The master owns the ephemeral node PATH, with its name as data. When its session ends the node
    ends, and the first process to create it again is the next master.
    """
    from kafkaesque.cli.coord_view import Candidate

    candidate = Candidate(client, path, name)
    while True:
        role, master = client.retry(candidate.run)
        screen.document(
            {"path": path, "name": name, "role": role, "master": master},
            functools.partial(screen.line, f"{name}: {role}, master is {master}"),
        )
        if once:
            return
        candidate.wait_for_change()
