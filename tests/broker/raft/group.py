"""One node with a disk, stepped by hand; and a few of them with a network that loses nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from tests.broker.raft.disk import Disk

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.messages import Append, Message
from kafkaesque.broker.raft.ready import ReadReady, Ready
from kafkaesque.broker.raft.types import Entry, EntryKind, HardState, LogIndex, Proposal, Role, Term
from kafkaesque.model.ids import MemberId

M = TypeVar("M")


def ids(*numbers: int) -> tuple[MemberId, ...]:
    return tuple(MemberId(number) for number in numbers)


def data(index: int, term: int, payload: object = None) -> Entry:
    text = f"{index}@{term}" if payload is None else payload
    return Entry(LogIndex(index), Term(term), EntryKind.DATA, 10, text)


def log_of(*terms: int) -> list[Entry]:
    return [data(index, term) for index, term in enumerate(terms, start=1)]


class Lone:
    """One node whose peers are the test itself. Writes are synced at once unless `is_slow`."""

    def __init__(
        self,
        node: int = 0,
        voters: Iterable[int] = (0, 1, 2),
        *,
        term: int = 0,
        vote: int | None = None,
        log: Iterable[Entry] = (),
        commit: int = 0,
        **settings: Any,
    ) -> None:
        self.disk = Disk(ids(*voters))
        self.disk.durable.hard_state = HardState(
            Term(term), None if vote is None else MemberId(vote)
        )
        self.disk.durable.entries = list(log)
        self.disk.written = self.disk.durable.copy()
        self.node = MemberId(node)
        self.config = RaftConfig(**settings)
        self.is_slow = False
        self.readies: list[Ready] = []
        self._sent: list[Message] = []
        self.start(commit)

    def start(self, commit: int = 0) -> None:
        restart = self.disk.restart(LogIndex(commit))
        self.raft = Raft(self.node, self.config, self.disk, lambda bound: 0, restart)

    def drive(self) -> None:
        while (ready := self.raft.ready()) is not None:
            self.raft.validate()
            self.readies.append(ready)
            self._sent += ready.messages
            self.disk.write(ready)
            if ready.committed is not None:
                self.raft.applied(ready.committed.last)
            if not self.is_slow and (token := self.disk.sync()) is not None:
                self.raft.synced(token)
        self.raft.validate()

    def step(self, *messages: Message) -> None:
        for message in messages:
            self.raft.step(message)
            self.drive()

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            self.raft.tick()
            self.drive()

    def propose(self, *payloads: object) -> LogIndex:
        index = self.raft.propose([Proposal(payload, 10) for payload in payloads])
        self.drive()
        return index

    def sync(self, count: int | None = None) -> None:
        token = self.disk.sync(count)
        if token is not None:
            self.raft.synced(token)
        self.drive()

    def sent(self, kind: type[M] | None = None) -> list[M]:
        """The messages of this kind that were sent since the last call. Clears the others too."""
        self.drive()
        sent: list[Any] = self._sent
        self._sent = []
        return [message for message in sent if kind is None or isinstance(message, kind)]

    def reads(self) -> list[ReadReady]:
        readies, self.readies = self.readies, []
        return [read for ready in readies for read in ready.reads]

    @property
    def role(self) -> Role:
        return self.raft.leadership.role

    @property
    def term(self) -> Term:
        return self.raft.leadership.term

    @property
    def commit(self) -> LogIndex:
        return self.raft.status().commit_index


class Group:
    """Nodes that reach each other, except those in `down`."""

    def __init__(self, count: int = 3, **settings: Any) -> None:
        self.nodes = [Lone(node, range(count), **settings) for node in range(count)]
        self.down: set[int] = set()
        self.seen: list[Message] = []

    def __getitem__(self, node: int) -> Lone:
        return self.nodes[node]

    def settle(self) -> None:
        while True:
            messages: list[Message] = []
            for number, node in enumerate(self.nodes):
                sent: list[Message] = node.sent()
                if number not in self.down:
                    messages += sent
            if not messages:
                return
            for message in messages:
                self.seen.append(message)
                if message.to not in self.down:
                    self.nodes[message.to].step(message)

    def elect(self, node: int) -> Lone:
        for other in self.nodes:
            other.raft._state.clock.forget_leader()
        self.nodes[node].raft.campaign()
        self.settle()
        assert self.nodes[node].role is Role.LEADER
        return self.nodes[node]

    def heartbeat(self, node: int) -> None:
        self.nodes[node].tick(self.nodes[node].config.heartbeat_ticks)
        self.settle()


def append(
    term: int,
    prev: tuple[int, int],
    entries: Iterable[Entry] = (),
    commit: int = 0,
    sender: int = 1,
) -> Append:
    return Append(
        MemberId(sender),
        MemberId(0),
        Term(term),
        LogIndex(prev[0]),
        Term(prev[1]),
        LogIndex(commit),
        tuple(entries),
    )
