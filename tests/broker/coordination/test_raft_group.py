"""The coordination tree as a Raft group: three servers on one event loop, links under control."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from tests.broker.replication.no_peers import no_prefix
from tests.broker.storage.failing import FailingCalls
from tests.waiting import until

from kafkaesque.broker.cluster.replicated_machine import StateFile
from kafkaesque.broker.coordination import raft_group
from kafkaesque.broker.coordination.raft_group import RaftGroup
from kafkaesque.broker.coordination.replicated import NotCommitted
from kafkaesque.broker.coordination.rules.machine import ApplyResult
from kafkaesque.broker.raft.messages import Append, Message
from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.replication.opening import batch_payload, open_replica
from kafkaesque.broker.replication.peer_calls import AnswerLost, PeerUnreachable
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Blob, Replica
from kafkaesque.broker.replication.replica_set import CONTROLLER_CONFIG, ReplicaSet
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.ids import COORDINATION_GROUP, GroupId, MemberId, NodeId
from kafkaesque.service.clock import SystemClock

COUNT = 3
TICK_S = 0.01


class Recorder:
    """A state machine that remembers everything."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.touched_ids: list[int] = []
        self.restored = 0

    def apply(self, index: int, command: bytes) -> ApplyResult:
        self.commands.append(command)
        return ApplyResult(index)

    def snapshot(self) -> bytes:
        return b"|".join(self.commands)

    def restore(self, snapshot: bytes) -> None:
        self.restored += 1
        self.commands = snapshot.split(b"|")

    def sessions_touched(self, session_ids: Collection[int]) -> None:
        self.touched_ids += session_ids


class Net:
    """Links between the servers: everything arrives in order, a turn later, unless cut."""

    def __init__(self) -> None:
        self.servers: dict[int, Server] = {}
        self.cut_off: set[int] = set()
        self.answers_lost = False

    def is_up(self, a: int, b: int) -> bool:
        return a in self.servers and b in self.servers and not self.cut_off & {a, b}


class NodeLinks:
    """One server's replacement for `Links`; also the outbox of its replicas."""

    def __init__(self, net: Net, me: int) -> None:
        self._net = net
        self._me = me

    def send(self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        if type(message) is Append and message.entries:
            entries = tuple(
                replace(entry, payload=batch_payload(memoryview(bytes(blob))))
                if blob is not None and not isinstance(entry.payload, bytes)
                else entry
                for entry, blob in zip(message.entries, blobs, strict=True)
            )
            message = message._replace(entries=entries)  # type: ignore[assignment]
        asyncio.get_running_loop().call_soon(self._arrive, node, group, message)

    def _arrive(self, node: NodeId, group: GroupId, message: Message) -> None:
        if self._net.is_up(self._me, node):
            self._net.servers[node].replicas.step(group, message)

    def lease_until(self, node: NodeId) -> float:
        return float("inf") if self._net.is_up(self._me, node) else 0.0

    def is_up(self, node: NodeId) -> bool:
        return self._net.is_up(self._me, node)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        if self._net.is_up(self._me, node):
            self._net.servers[node].group.post(kind, body)

    async def call(self, node: NodeId, kind: int, body: bytes, timeout_s: float) -> bytes:
        if not self._net.is_up(self._me, node):
            raise PeerUnreachable("cut")
        await asyncio.sleep(0)
        answer = self._net.servers[node].group.call(kind, body)
        answer = answer if isinstance(answer, bytes) else await answer
        if self._net.answers_lost:
            raise AnswerLost("lost")
        return answer


class Server:
    def __init__(self, number: int, directory: Path, net: Net) -> None:
        loop = asyncio.get_running_loop()
        self.number = number
        self.machine = Recorder()
        self.failures: list[BaseException] = []
        self.calls = FailingCalls()
        self._files = OpenFiles(16, self.calls)
        self._flusher = Flusher(loop)
        (directory / "raft").mkdir(parents=True, exist_ok=True)
        facts = RaftJournal.open(directory / "raft", self._files)
        links = NodeLinks(net, number)
        self.replicas = ReplicaSet(
            MemberId(number),
            facts,
            self._flusher,
            links,
            no_prefix,
            SystemClock(),
            loop.call_soon,
            self.failures.append,
        )
        log = Log.open(directory / "log", LogConfig(segment_bytes=2048), self._files, clean=False)
        states = StateFile(directory, name="tree.state")
        members = tuple(map(MemberId, range(COUNT)))

        def new_replica(machine: StateMachine) -> Replica:
            return open_replica(
                COORDINATION_GROUP, log, members, self.replicas, machine, CONTROLLER_CONFIG,
                is_clean=False,
            )  # fmt: skip

        self.group = RaftGroup(
            states,
            self.failures.append,
            self.replicas,
            SystemClock(),
            self.machine,
            links,  # type: ignore[arg-type]
            new_replica,
        )
        self.replicas.add(self.group.replica)
        net.servers[number] = self

    async def close(self) -> None:
        await self.group.stop()
        await self._flusher.settled()
        self.replicas.remove(COORDINATION_GROUP)
        await self._flusher.close()
        self.group.replica.entries.log.close(clean=False)
        self._files.close()


class Ensemble:
    """Three servers, ticking."""

    def __init__(self, directory: Path) -> None:
        self.net = Net()
        self._directory = directory
        self._ticker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Ensemble:
        for number in range(COUNT):
            self.start(number)
        self._ticker = asyncio.get_running_loop().create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.cancel()
        for server in tuple(self.net.servers.values()):
            await server.close()
            assert server.failures == []

    def start(self, number: int) -> Server:
        return Server(number, self._directory / str(number), self.net)

    async def kill(self, number: int) -> None:
        await self.net.servers.pop(number).close()
        for server in self.net.servers.values():
            server.replicas.unreachable(NodeId(number))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            for server in tuple(self.net.servers.values()):
                server.replicas.tick()

    async def leader(self) -> Server:
        def leaders() -> list[Server]:
            return [
                server
                for server in self.net.servers.values()
                if server.group.is_leader and server.number not in self.net.cut_off
            ]

        await until(lambda: len(leaders()) == 1)
        return leaders()[0]

    async def follower(self) -> Server:
        leader = await self.leader()
        found = next(s for s in self.net.servers.values() if s is not leader)
        await until(lambda: found.group.has_leader)
        return found

    async def commit(self, command: bytes, through: Server | None = None) -> ApplyResult:
        """Proposes `command` until a proposal is committed; earlier ones may be committed too.

        The proposals go through one server, or through the leader.

        On a busy machine a leader may resign because its disk is slow. Tests that do not depend on
        a stable leader use this.
        """
        while True:
            server = through or await self.leader()
            with suppress(NotCommitted):
                return await server.group.propose(command)


def run(story: Callable[[Ensemble], Awaitable[None]], directory: Path) -> None:
    async def whole() -> None:
        async with asyncio.timeout(40), Ensemble(directory) as ensemble:
            await story(ensemble)

    asyncio.run(whole())


def test_commands_of_all_servers_are_applied_alike_and_in_their_order(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        await ensemble.follower()
        servers = list(ensemble.net.servers.values())
        for attempt in count():  # again if another leader is elected meanwhile
            wanted = {
                prefix: (server, [prefix + b"%d" % n for n in range(50)])
                for server in servers
                for prefix in [b"%d-%d-" % (attempt, server.number)]
            }
            proposals = [
                server.group.propose(commands[n])
                for n in range(50)
                for server, commands in wanted.values()
            ]
            with suppress(NotCommitted):
                outcomes = await asyncio.gather(*proposals)
                break
            await asyncio.gather(*proposals, return_exceptions=True)
        assert len({outcome.zxid for outcome in outcomes}) == 150
        for server in servers:
            await server.group.read_barrier()
            assert server.machine.commands == servers[0].machine.commands
        for prefix, (_, commands) in wanted.items():
            assert [c for c in servers[0].machine.commands if c.startswith(prefix)] == commands

    run(story, tmp_path)


def test_outcome_means_applied_here(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        await ensemble.commit(b"mine", through=follower)
        assert follower.machine.commands[-1] == b"mine"

    run(story, tmp_path)


def test_read_barrier_of_a_follower_waits_for_commits_on_other_servers(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        for number in range(20):
            await ensemble.commit(b"%d" % number)
            follower = await ensemble.follower()
            await follower.group.read_barrier()
            assert follower.machine.commands[-1] == b"%d" % number

    run(story, tmp_path)


def test_command_that_no_leader_accepted_waits_for_a_new_leader(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        leader = await ensemble.leader()
        await ensemble.kill(leader.number)
        outcome = await follower.group.propose(b"patient")
        assert outcome.zxid > 0
        assert follower.machine.commands == [b"patient"]

    run(story, tmp_path)


def test_command_with_a_lost_answer_fails_and_is_applied_at_most_once(
    tmp_path: Path,
) -> None:
    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        ensemble.net.answers_lost = True
        proposal = asyncio.ensure_future(follower.group.propose(b"lost"))
        with suppress(NotCommitted):
            await proposal
        ensemble.net.answers_lost = False
        await ensemble.commit(b"next", through=follower)
        assert follower.machine.commands.count(b"lost") <= 1
        assert follower.machine.commands[-1] == b"next"

    run(story, tmp_path)


def test_deposed_leader_fails_its_uncommitted_commands(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        old = await ensemble.leader()
        await old.group.propose(b"first")
        ensemble.net.cut_off.add(old.number)
        stranded = asyncio.ensure_future(old.group.propose(b"stranded"))
        for server in ensemble.net.servers.values():
            if server is not old:
                server.replicas.unreachable(NodeId(old.number))
        new = await ensemble.leader()
        await new.group.propose(b"second")
        assert not stranded.done()
        ensemble.net.cut_off.clear()
        with pytest.raises(NotCommitted):
            await stranded
        await until(lambda: old.machine.commands == [b"first", b"second"])
        assert new.machine.commands == [b"first", b"second"]

    run(story, tmp_path)


def test_no_server_is_available_without_a_majority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_group, "LEADERLESS_SECONDS", 0.0)
    monkeypatch.setattr(raft_group, "WAIT_SECONDS", 0.2)

    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        leader = await ensemble.leader()
        assert leader.group.is_available
        assert follower.group.is_available
        ensemble.net.cut_off |= {leader.number, follower.number}
        # At once, long before Raft's own timeout.
        assert not leader.group.has_leader
        assert not follower.group.has_leader
        await until(lambda: not leader.group.is_available)
        await until(lambda: not follower.group.is_available)
        with pytest.raises(NotCommitted):
            await follower.group.propose(b"in vain")
        with pytest.raises(NotCommitted):
            await follower.group.read_barrier()

    run(story, tmp_path)


def test_follower_reports_touched_sessions_to_the_leader(tmp_path: Path) -> None:
    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        leader = await ensemble.leader()
        follower.group.touch_sessions([1, 2])
        leader.group.touch_sessions([3])
        await until(lambda: leader.machine.touched_ids == [1, 2, 3])
        assert follower.machine.touched_ids == []

    run(story, tmp_path)


def test_server_that_was_away_gets_a_snapshot_and_a_restart_begins_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_group, "SNAPSHOT_ENTRIES", 20)

    async def story(ensemble: Ensemble) -> None:
        follower = await ensemble.follower()
        await ensemble.kill(follower.number)
        commands = [b"%d" % number + b"x" * 100 for number in range(60)]
        for command in commands:
            await ensemble.commit(command)
        leader = await ensemble.leader()
        await leader.group.read_barrier()
        wanted = leader.machine.commands.copy()
        # With repetitions, if another leader was elected meanwhile.
        assert list(dict.fromkeys(wanted)) == commands
        for server in ensemble.net.servers.values():
            await server.group.save_if_grown()
            assert server.group.replica.entries.first_index > 1
        back = ensemble.start(follower.number)
        await until(lambda: back.machine.commands == wanted)
        assert back.machine.restored == 1
        await ensemble.commit(b"on", through=back)
        await ensemble.kill(back.number)
        again = ensemble.start(back.number)
        assert again.machine.restored == 1
        assert again.machine.commands[: len(wanted)] == wanted
        await until(lambda: again.machine.commands == leader.machine.commands)
        assert leader.machine.commands[: len(wanted) + 1] == [*wanted, b"on"]

    run(story, tmp_path)


def test_server_without_room_is_not_available_and_keeps_nothing_of_clients_that_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft_group, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(raft_group, "LEADERLESS_SECONDS", 0.2)

    async def story(ensemble: Ensemble) -> None:
        follower, leader = await ensemble.follower(), await ensemble.leader()
        await follower.group.propose(b"before")
        follower.calls.failing.add("pwrite")
        asked = [asyncio.ensure_future(follower.group.propose(b"%d" % n)) for n in range(20)]
        await until(lambda: len(leader.machine.commands) == 21)
        await until(lambda: not follower.group.is_available)
        with pytest.raises(NotCommitted, match="lags too far"):
            await follower.group.read_barrier()
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        assert follower.group._proposals == {}
        assert follower.failures == []
        follower.calls.failing.clear()
        await until(lambda: follower.group.is_available)
        await until(lambda: follower.machine.commands == leader.machine.commands)

    run(story, tmp_path)
