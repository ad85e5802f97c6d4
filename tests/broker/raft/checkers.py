"""The invariants of Raft (paper, figure 3) and of our own promises, each a small check.

They see the global state, as no node does: all disks, and everything that was ever committed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkaesque.broker.raft.messages import (
    AppendResponse,
    HeartbeatResponse,
    Message,
    RequestVote,
    VoteResponse,
)
from kafkaesque.broker.raft.quorum import majority
from kafkaesque.broker.raft.ready import ReadReady, Ready
from kafkaesque.broker.raft.types import NO_INDEX, HardState, LogIndex, Role, Term
from kafkaesque.model.ids import MemberId

if TYPE_CHECKING:
    from tests.broker.raft.simulation import Node


class Violation(AssertionError):
    """An invariant does not hold."""


def require(condition: bool, name: str, detail: object = "") -> None:
    if not condition:
        raise Violation(f"{name}: {detail}")


class Checkers:
    def __init__(self, nodes: dict[MemberId, Node]) -> None:
        self._nodes = nodes
        self.leaders: dict[Term, MemberId] = {}
        self._terms: dict[MemberId, Term] = {}
        self._commits: dict[MemberId, LogIndex] = {}
        self._entries: dict[tuple[LogIndex, Term], tuple[object, Term]] = {}
        self._committed: list[Term] = [Term(0)]
        """The term of the entry that was committed at each index."""
        self._applied: dict[LogIndex, object] = {}

    @property
    def committed_index(self) -> LogIndex:
        return LogIndex(len(self._committed) - 1)

    # After every step

    def after(self, node: Node) -> None:
        state = node.raft._state
        term, commit_index = state.term, state.commit_index
        require(term >= self._terms.get(node.node_id, 0), "term monotone", node.node_id)
        require(commit_index >= self._commits.get(node.node_id, 0), "commit monotone", commit_index)
        if state.leader_id == node.node_id:
            self._leads(node, term)
        if commit_index != self._commits.get(node.node_id):
            self._commits_agree(node, commit_index)
        self._terms[node.node_id] = term
        self._commits[node.node_id] = commit_index

    def _leads(self, node: Node, term: Term) -> None:
        known = self.leaders.get(term)
        if known is None:
            self.leaders[term] = node.node_id
            self._is_complete(node)
            require(
                node.disk.durable.hard_state == HardState(term, node.node_id),
                "a leader's term and vote are on its disk",
                node.disk.durable.hard_state,
            )
        else:
            require(known == node.node_id, "election safety", f"{known} and {node.node_id}: {term}")

    def _is_complete(self, node: Node) -> None:
        log = node.raft._state.log
        for index in range(log.first_index, self.committed_index + 1):
            require(
                log.term_at(LogIndex(index)) == self._committed[index],
                "leader completeness",
                f"node {node.node_id} lacks {index}",
            )

    def _commits_agree(self, node: Node, commit_index: LogIndex) -> None:
        log = node.raft._state.log
        first_new = len(self._committed)
        for number in range(first_new, commit_index + 1):
            index = LogIndex(number)
            term = log.term_at(index)
            require(term is not None, "a node commits what it does not have", index)
            assert term is not None
            self._committed.append(term)
            self._is_held_by_majority(node, index, term)
        before = self._commits.get(node.node_id, 0)
        for number in range(max(log.first_index, before + 1), min(first_new, commit_index + 1)):
            require(
                log.term_at(LogIndex(number)) == self._committed[number],
                "state machine safety",
                f"node {node.node_id} at {number}",
            )

    def _is_held_by_majority(self, node: Node, index: LogIndex, term: Term) -> None:
        voters = node.raft.status().membership.voters
        holders = [voter for voter in voters if self._nodes[voter].disk.durable.holds(index, term)]
        require(
            len(holders) >= majority(len(voters)),
            "a majority holds what is committed",
            f"{index} only on {holders} of {voters}",
        )

    # Effects

    def before_write(self, node: Node, ready: Ready) -> None:
        """Log matching: an index and a term name one entry, with one entry before it."""
        if ready.truncate_from is not None:
            for number in range(ready.truncate_from, node.disk.last_index + 1):
                is_safe = number > self.committed_index or (
                    node.disk.term_at(LogIndex(number)) != self._committed[number]
                )
                require(is_safe, "committed entries are never cut", number)
            require(
                node.raft.leadership.role is not Role.LEADER, "leader append-only", node.node_id
            )
        log = node.raft._state.log
        for entry in ready.entries:
            before = log.term_at(LogIndex(entry.index - 1))
            if before is None:
                continue  # an entry that was cut again before this Ready was handled
            fact = (entry.payload, before)
            known = self._entries.setdefault((entry.index, entry.term), fact)
            require(known == fact, "log matching", f"{entry.index}@{entry.term}: {known} {fact}")

    def sent(self, node: Node, message: Message) -> None:
        durable = node.disk.durable
        match message:
            case VoteResponse(granted=True):
                require(
                    durable.hard_state == HardState(message.term, message.to),
                    "a vote is on disk before it is given",
                    message,
                )
            case RequestVote():
                require(
                    durable.hard_state == HardState(message.term, node.node_id)
                    and durable.holds(message.last_index, message.last_term),
                    "a candidate's vote and log are on disk before it asks",
                    message,
                )
            case AppendResponse() | HeartbeatResponse() if message.match_index > NO_INDEX:
                term = node.raft._state.log.term_at(message.match_index)
                is_durable = term is None or durable.holds(message.match_index, term)
                require(is_durable, "what is acknowledged is on disk", message)

    def applied(self, node: Node, first: LogIndex, last: LogIndex) -> None:
        for number in range(first, last + 1):
            index = LogIndex(number)
            entry = node.disk.written.entry(index)
            require(node.disk.durable.holds(index, entry.term), "applied is durable", node.node_id)
            require(entry.term == self._committed[index], "state machine safety", index)
            known = self._applied.setdefault(index, entry.payload)
            require(known == entry.payload, "state machine safety", (known, entry.payload))

    def read(self, read: ReadReady) -> None:
        assert isinstance(read.context, tuple)
        _, floor = read.context
        require(read.index >= floor, "linearizable read", f"{read.index} after {floor}")

    def crashed(self, node: Node) -> None:
        self._commits[node.node_id] = NO_INDEX
        self._terms[node.node_id] = Term(0)

    def restarted(self, node: Node) -> None:
        """A restarted node may have lost state, but nothing that its disk promised."""
        self._terms[node.node_id] = node.disk.durable.hard_state.term

    # After a phase

    def at_end(self) -> None:
        """All logs agree with everything that was committed."""
        for node in self._nodes.values():
            image = node.disk.written
            for entry in image.entries:
                if entry.index <= self._commits.get(node.node_id, 0):
                    require(entry.term == self._committed[entry.index], "logs agree", entry.index)

    def leader_node(self) -> Node:
        term = max(
            node.raft.leadership.term
            for node in self._nodes.values()
            if node.raft.leadership.role is Role.LEADER
        )
        return self._nodes[self.leaders[term]]

    def must_have_leader(self) -> None:
        leaders = [
            node.node_id
            for node in self._nodes.values()
            if node.raft.leadership.role is Role.LEADER
        ]
        require(bool(leaders), "a leader in peace", [n.raft.status() for n in self._nodes.values()])

    def must_agree(self) -> None:
        leader = self.leader_node()
        status = leader.raft.status()
        require(status.commit_index == status.last_index, "all is committed in peace", status)
        require(status.leadership.is_confirmed, "the term is confirmed after the faults", status)
        for node_id in status.membership.nodes:
            other = self._nodes[node_id].raft.status()
            require(other.commit_index == status.commit_index, "all know it in peace", other)
            require(other.applied_index == status.commit_index, "all applied it in peace", other)
            require(
                other.leadership.leader_id == leader.node_id, "all follow after the faults", other
            )
