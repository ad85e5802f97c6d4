"""The replicated state machine: applies committed commands to the tree and the sessions.

Every replica applies the same commands in the same order and reaches the same state and outcomes.
The zxid of a change is the index of its command in the log. Watches are not here: each server keeps
those of its own clients (`watches.py`) and triggers them with an outcome's events. `find_reapable`
is for the leader, which proposes to remove nodes.
"""

from __future__ import annotations

from typing import NamedTuple

from kafkaesque.broker.coordination.rules import operations
from kafkaesque.broker.coordination.rules.commands import (
    AttachSession,
    CloseSession,
    Command,
    Multi,
    MultiPart,
    OpenSession,
    Reap,
    SetAcl,
    WriteCommand,
    decode_command,
)
from kafkaesque.broker.coordination.rules.operations import Author, NodeEvent, TreeChange
from kafkaesque.broker.coordination.rules.registry import is_registry
from kafkaesque.broker.coordination.rules.sessions import SESSIONS_MAX, ClientSession
from kafkaesque.broker.coordination.rules.snapshot import Image, decode_image, encode_image
from kafkaesque.broker.coordination.rules.tree import Stat, Tree, TreeLimits, ttl_of
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError, OpCode
from kafkaesque.model.errors import check


class Result(NamedTuple):
    """The content of the answer to one operation."""

    opcode: OpCode
    code: Code
    path: str = ""
    stat: Stat | None = None


class ApplyResult(NamedTuple):
    """The effect of a command, the same on every replica.

    The driver acts in this order: events to watchers, then the connections of the sessions, then the
    answer to the proposer.
    """

    zxid: int
    code: Code = Code.OK
    results: tuple[Result, ...] = ()
    """One, or one for each part of a multi."""
    events: tuple[NodeEvent, ...] = ()
    session_started: ClientSession | None = None
    """Opened or attached: an older connection of the session has lost it."""
    session_closed: int | None = None


class Machine:
    """Tree and sessions at `zxid`, the index of the last command applied."""

    __slots__ = ("_has_registries", "_sessions_max", "_tree_limits", "sessions", "tree", "zxid")

    def __init__(
        self,
        tree_limits: TreeLimits | None = None,
        sessions_max: int = SESSIONS_MAX,
        *,
        has_registries: bool = False,
    ) -> None:
        """`has_registries`: clients cannot write below the names of registries. All arguments must be
        the same on every replica."""
        self._tree_limits = tree_limits or TreeLimits()
        self._has_registries = has_registries
        self._sessions_max = sessions_max
        self.zxid = 0
        self.tree = Tree(self._tree_limits)
        self.sessions: dict[int, ClientSession] = {}

    def apply(self, index: int, command: bytes) -> ApplyResult:
        """Applies `command`. Indexes may have gaps and never decrease."""
        check(index > self.zxid, f"command {index} comes after {self.zxid}")
        self.zxid = index
        decoded = decode_command(command)
        try:
            return self._apply(decoded)
        except CoordinationError as error:
            return ApplyResult(index, error.code)

    def _apply(self, command: Command) -> ApplyResult:
        match command:
            case WriteCommand():
                return self._write(command)
            case OpenSession():
                return self._open(command)
            case AttachSession():
                return self._attach(command)
            case CloseSession():
                return self._close(command)
            case Reap():
                return self._reap(command)

    # -- writes ---------------------------------------------------------------------------------

    def _write(self, command: WriteCommand) -> ApplyResult:
        session = self._session(command.session_id, command.owner)
        if command.sequence != session.next_sequence:
            # An earlier write of this connection was lost: this one must not overtake it.
            raise CoordinationError(Code.SESSION_MOVED, "a write out of order")
        session.next_sequence += 1
        author = Author(command.session_id, command.identities, self.zxid, command.now_ms)
        if isinstance(command.operation, Multi):
            return self._multi(command.operation, author)
        change = self._perform(command.operation, author)
        return ApplyResult(self.zxid, Code.OK, (_result(change),), change.events)

    def _perform(self, operation: MultiPart | SetAcl, author: Author) -> TreeChange:
        if self._has_registries and is_registry(operation.path):
            raise CoordinationError(Code.NO_AUTH, f"{operation.path} is read-only")
        return operations.perform(self.tree, operation, author)

    def _multi(self, multi: Multi, author: Author) -> ApplyResult:
        done: list[TreeChange] = []
        for number, part in enumerate(multi.parts):
            try:
                done.append(self._perform(part, author))
            except CoordinationError as error:
                for change in reversed(done):
                    if change.undo is not None:
                        change.undo()
                return ApplyResult(
                    self.zxid, Code.OK, _failed_parts(len(multi.parts), number, error.code)
                )
        events = tuple(event for change in done for event in change.events)
        return ApplyResult(self.zxid, Code.OK, tuple(map(_result, done)), events)

    def _reap(self, command: Reap) -> ApplyResult:
        node = self.tree.get(command.path)
        if (
            node is None
            or node.children
            or (node.czxid, node.mzxid) != (command.czxid, command.mzxid)
        ):
            return ApplyResult(self.zxid)
        change = operations.remove(self.tree, command.path, node, self.zxid)
        return ApplyResult(self.zxid, events=change.events)

    # -- sessions -------------------------------------------------------------------------------

    def _session(self, session_id: int, owner: int) -> ClientSession:
        session = self.sessions.get(session_id)
        if session is None:
            raise CoordinationError(Code.SESSION_EXPIRED)
        if session.owner != owner:
            raise CoordinationError(Code.SESSION_MOVED)
        return session

    def _open(self, command: OpenSession) -> ApplyResult:
        if command.session_id in self.sessions or len(self.sessions) >= self._sessions_max:
            raise CoordinationError(Code.SYSTEM_ERROR, "no room for a session")
        session = ClientSession(
            command.session_id, command.password, command.timeout_ms, command.owner
        )
        self.sessions[command.session_id] = session
        return ApplyResult(self.zxid, session_started=session)

    def _attach(self, command: AttachSession) -> ApplyResult:
        session = self.sessions.get(command.session_id)
        # No constant-time comparison: an attacker cannot measure the time of an apply.
        if session is None or session.password != command.password:
            raise CoordinationError(Code.SESSION_EXPIRED)
        session.timeout_ms = command.timeout_ms
        session.owner = command.owner
        session.next_sequence = 0
        return ApplyResult(self.zxid, session_started=session)

    def _close(self, command: CloseSession) -> ApplyResult:
        self._session(command.session_id, command.owner)
        events: list[NodeEvent] = []
        for path in self.tree.ephemerals_of(command.session_id):
            change = operations.remove(self.tree, path, self.tree.require(path), self.zxid)
            events += change.events
        del self.sessions[command.session_id]
        return ApplyResult(self.zxid, events=tuple(events), session_closed=command.session_id)

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """The whole state as of `zxid`."""
        return encode_image(Image(self.zxid, self.tree, self.sessions))

    def restore(self, snapshot: bytes) -> None:
        """Replaces the state with a snapshot."""
        self.zxid, self.tree, self.sessions = decode_image(snapshot, self._tree_limits)


def _result(change: TreeChange) -> Result:
    return Result(change.opcode, Code.OK, change.path, change.stat)


def _failed_parts(count: int, failed: int, code: Code) -> tuple[Result, ...]:
    """The results of a failed multi: OK before the failed part, RUNTIME_INCONSISTENCY after it."""
    return (
        *(Result(OpCode.ERROR, Code.OK) for _ in range(failed)),
        Result(OpCode.ERROR, code),
        *(Result(OpCode.ERROR, Code.RUNTIME_INCONSISTENCY) for _ in range(count - failed - 1)),
    )


REAPED_AT_ONCE_MAX = 1000
"""The most nodes reaped at once, so that reaping does not crowd out the clients' writes."""


def find_reapable(tree: Tree, now_ms: int) -> list[Reap]:
    """Containers that were used and are empty, and nodes whose TTL has expired.

    The rules of ContainerManager (3.9). `Machine` checks again when it applies the command, since a
    node may have changed meanwhile.
    """
    found: list[Reap] = []
    for path, node in tree.reapable():
        if node.children:
            continue
        if node.is_container:
            is_due = node.child_creates > 0
        else:
            is_due = now_ms - node.mtime_ms > (ttl_of(node.owner) or 0)
        if is_due:
            found.append(Reap(path, node.czxid, node.mzxid))
            if len(found) == REAPED_AT_ONCE_MAX:
                break
    return found
