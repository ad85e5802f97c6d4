"""The commands of the scripts in tests/scripts/raft.

Nodes are numbers. The effects of each node are printed as they happen: `0 save`, `0 append`, `0 cut`, `0 sync`
for its disk, `0>1 ...` for a message it sends (`lost` when the link is cut), `0 apply`, `0 read`,
and `0 is ...` when its leadership changes. Entries are written index@term. Timeouts are not random:
the election timeout of node n is the configured one plus n ticks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tests.broker.raft.disk import Disk

from kafkaesque.broker.raft.config import RaftConfig
from kafkaesque.broker.raft.core import Raft
from kafkaesque.broker.raft.membership import ChangeKind, MembershipChange
from kafkaesque.broker.raft.messages import (
    Append,
    AppendRejected,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallSnapshot,
    Message,
    PreVote,
    PreVoteResponse,
    RequestVote,
    TimeoutNow,
    VoteResponse,
)
from kafkaesque.broker.raft.ready import Ready
from kafkaesque.broker.raft.types import (
    Entry,
    EntryKind,
    LogIndex,
    Membership,
    Proposal,
    Refused,
    Role,
    Snapshot,
)
from kafkaesque.model.ids import MemberId
from kafkaesque.testing.script import Command, ScriptError

SETTINGS = {
    "election": "election_timeout_ticks",
    "heartbeat": "heartbeat_ticks",
    "append-bytes": "append_bytes_max",
    "window": "inflight_messages_max",
    "lease": "lease_reads",
    "margin": "lease_margin_ticks",
    "quiesce": "quiesce_after_ticks",
    "commit-broadcast": "commit_broadcast",
    "promotion-lag": "promotion_lag_entries_max",
}
ENTRY_BYTES = 10


@dataclass
class Node:
    disk: Disk
    raft: Raft
    is_up: bool = True
    holds_disk: bool = False
    """Writes wait for the command `sync`."""


def nodes_text(nodes: Iterable[MemberId]) -> str:
    return ",".join(str(node) for node in nodes)


def membership_text(membership: Membership) -> str:
    learners = f" learners={nodes_text(membership.learners)}" if membership.learners else ""
    return f"voters={nodes_text(membership.voters)}{learners}"


def entry_text(entry: Entry) -> str:
    where = f"{entry.index}@{entry.term}"
    if entry.kind is EntryKind.NOOP:
        return f"{where} noop"
    if isinstance(entry.payload, Membership):
        return f"{where} {membership_text(entry.payload)}"
    return f"{where} {entry.payload}"


def entries_text(entries: Iterable[Entry]) -> str:
    return "[" + ", ".join(entry_text(entry) for entry in entries) + "]"


def message_text(message: Message) -> str:
    head = f"{message.sender}>{message.to} {type(message).__name__} term={message.term}"
    match message:
        case PreVote() | RequestVote():
            handover = (
                " handover" if isinstance(message, RequestVote) and message.is_handover else ""
            )
            return f"{head} last={message.last_index}@{message.last_term}{handover}"
        case PreVoteResponse() | VoteResponse():
            return f"{head} {'granted' if message.granted else 'refused'}"
        case Append():
            prev = f"prev={message.prev_index}@{message.prev_term} commit={message.commit_index}"
            return f"{head} {prev} {entries_text(message.entries)}"
        case AppendResponse():
            return f"{head} match={message.match_index}"
        case AppendRejected():
            hint = f"hint={message.hint_index}@{message.hint_term}"
            return f"{head} prev={message.prev_index} {hint}"
        case Heartbeat():
            sleep = " may sleep" if message.may_quiesce else ""
            return f"{head} round={message.round} commit={message.commit_index}{sleep}"
        case HeartbeatResponse():
            got = f"received={message.received_index} match={message.match_index}"
            return f"{head} round={message.round} {got}"
        case InstallSnapshot():
            snapshot = message.snapshot
            membership = membership_text(snapshot.membership)
            return f"{head} {snapshot.index}@{snapshot.term} {membership} {snapshot.state}"
        case TimeoutNow():
            return head


class Interpreter:
    """Runs the commands of one script against one group."""

    def __init__(self) -> None:
        self._nodes: dict[MemberId, Node] = {}
        self._config = RaftConfig()
        self._network: list[Message] = []
        self._cuts: set[tuple[MemberId, MemberId]] = set()
        self._words: dict[str, Callable[[Command], Iterable[str]]] = {
            "group": self._group,
            "tick": self._tick,
            "tick-all": self._tick_all,
            "campaign": self._campaign,
            "lead": self._lead,
            "propose": self._propose,
            "read": self._read,
            "transfer": self._transfer,
            "change": self._change,
            "resign": self._resign,
            "disk-fails": self._disk_fails,
            "lapse": self._lapse,
            "settle": self._settle,
            "deliver": self._deliver,
            "drop": self._drop,
            "cut": self._cut,
            "isolate": self._isolate,
            "heal": self._heal,
            "hold-disk": self._hold_disk,
            "sync": self._sync,
            "crash": self._crash,
            "restart": self._restart,
            "compact": self._compact,
            "unreachable": self._unreachable,
            "reachable": self._reachable,
            "wake": self._wake,
            "status": self._status,
            "log": self._log,
        }

    def __call__(self, command: Command) -> Iterable[str]:
        word = self._words.get(command.name)
        if word is None:
            raise ScriptError(f"line {command.line_number}: no command {command.name}")
        try:
            yield from word(command)
        except Refused as refused:
            hint = "" if refused.leader_id is None else f", try {refused.leader_id}"
            yield f"refused: {refused}{hint}"

    # The group

    def _group(self, command: Command) -> Iterator[str]:
        """group 0 1 2 [joining=3] [election=10] [window=2] ..."""
        command.expect_options("joining", *SETTINGS)
        settings: dict[str, Any] = {
            SETTINGS[name]: type(getattr(RaftConfig(), SETTINGS[name]))(int(value))
            for name, value in command.options.items()
            if name in SETTINGS
        }
        self._config = replace(RaftConfig(), **settings)
        voters = tuple(MemberId(int(word)) for word in command.arguments)
        joining = [MemberId(int(word)) for word in command.option("joining", "").split(",") if word]
        for node in [*voters, *joining]:
            disk = Disk(voters if node in voters else ())
            self._nodes[node] = Node(disk, self._start(node, disk))
        yield f"voters={nodes_text(voters)}"

    def _start(self, node_id: MemberId, disk: Disk) -> Raft:
        return Raft(node_id, self._config, disk, lambda bound: node_id % bound, disk.restart())

    def _node(self, command: Command, position: int = 0) -> tuple[MemberId, Node]:
        node_id = MemberId(int(command.arguments[position]))
        return node_id, self._nodes[node_id]

    # Inputs

    def _tick(self, command: Command) -> Iterator[str]:
        """tick NODE [COUNT]; messages stay in the network"""
        node_id, node = self._node(command)
        for _ in range(int(command.arguments[1]) if len(command.arguments) > 1 else 1):
            node.raft.tick()
            yield from self._drive(node_id)

    def _tick_all(self, command: Command) -> Iterator[str]:
        """tick-all [COUNT]: all that are up, everything delivered after each"""
        for _ in range(int(command.arguments[0]) if command.arguments else 1):
            for node_id, node in self._nodes.items():
                if node.is_up:
                    node.raft.tick()
                    yield from self._drive(node_id)
            yield from self._settle(command)

    def _campaign(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.raft.campaign()
        yield from self._drive(node_id)

    def _lead(self, command: Command) -> Iterator[str]:
        """lead NODE: holds an election and prints one line only"""
        trace = [*self._campaign(command), *self._settle(command)]
        node_id, node = self._node(command)
        if node.raft.leadership.role is not Role.LEADER:
            raise ScriptError(f"line {command.line_number}: no election: {trace}")
        yield f"{node_id} leads in term {node.raft.leadership.term}"

    def _lapse(self, command: Command) -> Iterator[str]:
        """Ticks after which no node has heard a leader recently, so any of them may be elected."""
        for node in self._nodes.values():
            node.raft._state.clock.forget_leader()
        yield from ()

    def _propose(self, command: Command) -> Iterator[str]:
        """propose NODE PAYLOAD..."""
        node_id, node = self._node(command)
        node.raft.propose([Proposal(word, ENTRY_BYTES) for word in command.arguments[1:]])
        yield from self._drive(node_id)

    def _read(self, command: Command) -> Iterator[str]:
        """read NODE CONTEXT [owed=TICKS]"""
        command.expect_options("owed")
        node_id, node = self._node(command)
        owed = int(command.option("owed", "0"))
        node.raft.read_index(command.arguments[1], ticks_owed=owed)
        yield from self._drive(node_id)

    def _transfer(self, command: Command) -> Iterator[str]:
        """transfer NODE TARGET"""
        node_id, node = self._node(command)
        node.raft.transfer_leadership(MemberId(int(command.arguments[1])))
        yield from self._drive(node_id)

    def _change(self, command: Command) -> Iterator[str]:
        """change NODE add-learner|promote|demote|remove MEMBER"""
        node_id, node = self._node(command)
        kind = ChangeKind(command.arguments[1].replace("-", " "))
        node.raft.propose_membership(MembershipChange(kind, MemberId(int(command.arguments[2]))))
        yield from self._drive(node_id)

    def _resign(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.raft.resign()
        yield from self._drive(node_id)

    def _disk_fails(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.raft.storage_failed()
        yield from self._drive(node_id)

    def _unreachable(self, command: Command) -> Iterator[str]:
        """unreachable NODE PEER"""
        node_id, node = self._node(command)
        node.raft.peer_unreachable(MemberId(int(command.arguments[1])))
        yield from self._drive(node_id)

    def _reachable(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.raft.peer_reachable(MemberId(int(command.arguments[1])))
        yield from self._drive(node_id)

    def _wake(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.raft.wake()
        yield from self._drive(node_id)

    # The network

    def _settle(self, command: Command) -> Iterator[str]:
        """Deliver everything, in order, until nothing is in flight."""
        while self._network:
            yield from self._deliver_first()

    def _deliver(self, command: Command) -> Iterator[str]:
        """deliver [COUNT]: the oldest messages"""
        for _ in range(int(command.arguments[0]) if command.arguments else 1):
            if self._network:
                yield from self._deliver_first()

    def _deliver_first(self) -> Iterator[str]:
        message = self._network.pop(0)
        if self._nodes[message.to].is_up:
            self._nodes[message.to].raft.step(message)
            yield from self._drive(message.to)

    def _drop(self, command: Command) -> Iterator[str]:
        """Lose everything that is in flight."""
        for message in self._network:
            yield f"dropped {message_text(message)}"
        self._network.clear()

    def _cut(self, command: Command) -> Iterator[str]:
        """cut NODE NODE: both directions"""
        one, other = (MemberId(int(word)) for word in command.arguments)
        self._cuts |= {(one, other), (other, one)}
        yield from ()

    def _isolate(self, command: Command) -> Iterator[str]:
        one = MemberId(int(command.arguments[0]))
        for other in self._nodes:
            self._cuts |= {(one, other), (other, one)}
        yield from ()

    def _heal(self, command: Command) -> Iterator[str]:
        self._cuts.clear()
        yield from ()

    # The disk

    def _hold_disk(self, command: Command) -> Iterator[str]:
        self._node(command)[1].holds_disk = True
        yield from ()

    def _sync(self, command: Command) -> Iterator[str]:
        """sync NODE [COUNT]: the oldest writes become durable; all of them without COUNT, and the
        disk is quick again"""
        node_id, node = self._node(command)
        count = int(command.arguments[1]) if len(command.arguments) > 1 else None
        node.holds_disk = count is not None
        token = node.disk.sync(count)
        if token is not None:
            yield f"{node_id} sync"
            node.raft.synced(token)
        yield from self._drive(node_id)

    def _crash(self, command: Command) -> Iterator[str]:
        """crash NODE: loses what was not synced"""
        node_id, node = self._node(command)
        node.is_up = node.holds_disk = False
        lost = [part for _, parts in node.disk.pending for part in parts]
        node.disk.crash(lambda bound: 0)
        yield f"{node_id} down, {len(lost)} unsynced writes lost"

    def _restart(self, command: Command) -> Iterator[str]:
        node_id, node = self._node(command)
        node.is_up = True
        node.raft = self._start(node_id, node.disk)
        yield from self._drive(node_id)

    def _compact(self, command: Command) -> Iterator[str]:
        """compact NODE INDEX: its log starts after INDEX from now on"""
        _, node = self._node(command)
        index = LogIndex(int(command.arguments[1]))
        state = f"state-{index}"
        membership = node.raft.membership_at(index)
        node.disk.compact(Snapshot(index, node.disk.term_at(index), membership, state))
        yield from ()

    # Inspection

    def _status(self, command: Command) -> Iterator[str]:
        chosen = [MemberId(int(word)) for word in command.arguments] or list(self._nodes)
        for node_id in chosen:
            status = self._nodes[node_id].raft.status()
            leadership = status.leadership
            yield (
                f"{node_id} {leadership.role.value} term={leadership.term} leader={leadership.leader_id} "
                f"commit={status.commit_index} durable={status.durable_index} "
                f"last={status.last_index} {membership_text(status.membership)}"
                f"{' sleeping' if status.is_quiesced else ''}{' lease' if status.has_lease else ''}"
            )
            for peer_id, peer in status.peers.items():
                quiet = "" if peer.is_active else " silent"
                yield f"  {peer_id} {peer.state} match={peer.match_index} next={peer.next_index}{quiet}"

    def _log(self, command: Command) -> Iterator[str]:
        chosen = [MemberId(int(word)) for word in command.arguments] or list(self._nodes)
        for node_id in chosen:
            disk = self._nodes[node_id].disk
            start = f"after {disk.written.snapshot.index} " if disk.first_index > 1 else ""
            yield f"{node_id} {start}{entries_text(disk.written.entries)}"

    # The driver

    def _drive(self, node_id: MemberId) -> Iterator[str]:
        node = self._nodes[node_id]
        while (ready := node.raft.ready()) is not None:
            node.raft.validate()
            node.disk.write(ready)
            yield from self._show_writes(node_id, ready)
            yield from self._send(ready)
            for read in ready.reads:
                yield f"{node_id} read {read.context} at {read.index}"
            if ready.committed is not None:
                yield f"{node_id} apply {ready.committed.first}..{ready.committed.last}"
                node.raft.applied(ready.committed.last)
            if ready.leadership is not None:
                leadership = ready.leadership
                confirmed = " confirmed" if leadership.is_confirmed else ""
                leader = "" if leadership.leader_id is None else f" of {leadership.leader_id}"
                leader = "" if leadership.role is Role.LEADER else leader
                yield f"{node_id} is {leadership.role.value}{leader} term={leadership.term}{confirmed}"
            if not node.holds_disk and (token := node.disk.sync()) is not None:
                yield f"{node_id} sync"
                node.raft.synced(token)

    def _show_writes(self, node_id: MemberId, ready: Ready) -> Iterator[str]:
        if ready.hard_state is not None:
            vote = "-" if ready.hard_state.vote is None else ready.hard_state.vote
            yield f"{node_id} save term={ready.hard_state.term} vote={vote}"
        if ready.snapshot is not None:
            snapshot = ready.snapshot
            yield f"{node_id} install {snapshot.index}@{snapshot.term} {snapshot.state}"
        if ready.truncate_from is not None:
            yield f"{node_id} cut from {ready.truncate_from}"
        if ready.entries:
            yield f"{node_id} append {entries_text(ready.entries)}"

    def _send(self, ready: Ready) -> Iterator[str]:
        for message in ready.messages:
            is_lost = (message.sender, message.to) in self._cuts
            yield message_text(message) + (" lost" if is_lost else "")
            if not is_lost:
                self._network.append(message)
