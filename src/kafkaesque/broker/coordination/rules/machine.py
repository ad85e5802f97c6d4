"""X"""

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
    Write,
    decode_command,
)
from kafkaesque.broker.coordination.rules.operations import Author, Change, NodeEvent
from kafkaesque.broker.coordination.rules.registry import is_registry
from kafkaesque.broker.coordination.rules.sessions import SESSIONS_MAX, Session
from kafkaesque.broker.coordination.rules.snapshot import Image, decode_image, encode_image
from kafkaesque.broker.coordination.rules.tree import Stat, Tree, TreeLimits, ttl_of
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError, OpCode
from kafkaesque.model.errors import check


class Result(NamedTuple):
    """What the answer to one operation shows."""

    opcode: OpCode
    code: Code
    path: str = ""
    stat: Stat | None = None


class Outcome(NamedTuple):
    """What applying a command did, the same on every replica.

    The driver acts on it in this order: events to their watchers, then connections of the sessions
    named, then the answer to whoever proposed it.
    """

    zxid: int
    code: Code = Code.OK
    results: tuple[Result, ...] = ()
    """One, or those of the parts of a multi."""
    events: tuple[NodeEvent, ...] = ()
    session_started: Session | None = None
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
        """`has_registries`: the names of registries are not for clients. All of it must be the same
        on every replica."""
        self._tree_limits = tree_limits or TreeLimits()
        self._has_registries = has_registries
        self._sessions_max = sessions_max
        self.zxid = 0
        self.tree = Tree(self._tree_limits)
        self.sessions: dict[int, Session] = {}

    def apply(self, index: int, command: bytes) -> Outcome:
        """Do what `command` says. Indexes may leave gaps and never go back."""
        check(index > self.zxid, f"command {index} comes after {self.zxid}")
        self.zxid = index
        decoded = decode_command(command)
        try:
            return self._apply(decoded)
        except CoordinationError as error:
            return Outcome(index, error.code)

    def _apply(self, command: Command) -> Outcome:
        match command:
            case Write():
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

    def _write(self, command: Write) -> Outcome:
        session = self._session(command.session_id, command.owner)
        if command.sequence != session.next_sequence:
            # An earlier write of this connection was lost on its way: this one must not overtake it.
            raise CoordinationError(Code.SESSION_MOVED, "a write out of order")
        session.next_sequence += 1
        author = Author(command.session_id, command.identities, self.zxid, command.now_ms)
        if isinstance(command.operation, Multi):
            return self._multi(command.operation, author)
        change = self._perform(command.operation, author)
        return Outcome(self.zxid, Code.OK, (_result(change),), change.events)

    def _perform(self, operation: MultiPart | SetAcl, author: Author) -> Change:
        if self._has_registries and is_registry(operation.path):
            raise CoordinationError(Code.NO_AUTH, f"{operation.path} is read-only")
        return operations.perform(self.tree, operation, author)

    def _multi(self, multi: Multi, author: Author) -> Outcome:
        done: list[Change] = []
        for number, part in enumerate(multi.parts):
            try:
                done.append(self._perform(part, author))
            except CoordinationError as error:
                for change in reversed(done):
                    if change.undo is not None:
                        change.undo()
                return Outcome(
                    self.zxid, Code.OK, _failed_parts(len(multi.parts), number, error.code)
                )
        events = tuple(event for change in done for event in change.events)
        return Outcome(self.zxid, Code.OK, tuple(map(_result, done)), events)

    def _reap(self, command: Reap) -> Outcome:
        node = self.tree.get(command.path)
        if (
            node is None
            or node.children
            or (node.czxid, node.mzxid) != (command.czxid, command.mzxid)
        ):
            return Outcome(self.zxid)
        change = operations.remove(self.tree, command.path, node, self.zxid)
        return Outcome(self.zxid, events=change.events)

    # -- sessions -------------------------------------------------------------------------------

    def _session(self, session_id: int, owner: int) -> Session:
        session = self.sessions.get(session_id)
        if session is None:
            raise CoordinationError(Code.SESSION_EXPIRED)
        if session.owner != owner:
            raise CoordinationError(Code.SESSION_MOVED)
        return session

    def _open(self, command: OpenSession) -> Outcome:
        if command.session_id in self.sessions or len(self.sessions) >= self._sessions_max:
            raise CoordinationError(Code.SYSTEM_ERROR, "no room for a session")
        session = Session(command.session_id, command.password, command.timeout_ms, command.owner)
        self.sessions[command.session_id] = session
        return Outcome(self.zxid, session_started=session)

    def _attach(self, command: AttachSession) -> Outcome:
        session = self.sessions.get(command.session_id)
        # The log is not the place where an attacker could measure the comparison.
        if session is None or session.password != command.password:
            raise CoordinationError(Code.SESSION_EXPIRED)
        session.timeout_ms = command.timeout_ms
        session.owner = command.owner
        session.next_sequence = 0
        return Outcome(self.zxid, session_started=session)

    def _close(self, command: CloseSession) -> Outcome:
        self._session(command.session_id, command.owner)
        events: list[NodeEvent] = []
        for path in self.tree.ephemerals_of(command.session_id):
            change = operations.remove(self.tree, path, self.tree.require(path), self.zxid)
            events += change.events
        del self.sessions[command.session_id]
        return Outcome(self.zxid, events=tuple(events), session_closed=command.session_id)

    # -- snapshots ------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything, as of `zxid`."""
        return encode_image(Image(self.zxid, self.tree, self.sessions))

    def restore(self, snapshot: bytes) -> None:
        """Become what `snapshot` was taken of."""
        self.zxid, self.tree, self.sessions = decode_image(snapshot, self._tree_limits)


def _result(change: Change) -> Result:
    return Result(change.opcode, Code.OK, change.path, change.stat)


def _failed_parts(count: int, failed: int, code: Code) -> tuple[Result, ...]:
    """What a client sees of a multi that failed: OK before the culprit, inconsistent behind it."""
    return (
        *(Result(OpCode.ERROR, Code.OK) for _ in range(failed)),
        Result(OpCode.ERROR, code),
        *(Result(OpCode.ERROR, Code.RUNTIME_INCONSISTENCY) for _ in range(count - failed - 1)),
    )


REAPED_AT_ONCE_MAX = 1000
"""Found in one look, so that a great cleaning does not crowd out the clients' writes."""


def find_reapable(tree: Tree, now_ms: int) -> list[Reap]:
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
