"""One simulated broker: its disk, its clock, and the starts and deaths of its process.

There are no rules here: messages are passed from the network to the product and back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.lab.sim.ground_truth import InvariantViolation
from kafkaesque.lab.sim.loop import SimulatedFuture
from kafkaesque.lab.sim.network import SILENCE_US, PeerEnvelope
from kafkaesque.lab.sim.process import SimulatedProcess, SimulationSetting
from kafkaesque.lab.sim.schedule import MILLISECOND_US, SECOND_US, Action, NodeClock, random_stream
from kafkaesque.lab.sim.transport import brief, received, received_by_codec
from kafkaesque.lab.sim.view import ReplicaView
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import GroupId, MemberId, NodeId, member_id

TICK_US: Final = 25 * MILLISECOND_US
SYNC_LATENCY_US_MAX: Final = 4 * MILLISECOND_US
LEASE_SECONDS: Final = SILENCE_US / SECOND_US * 0.5
"""In the same proportion as in broker/node. A lease must expire before the election timeout of a node that
received its last heartbeat two ticks before the ping."""
BACKLOG_MAX: Final = 3_000


class SimulatedNode:
    """All calls into the process go through `run`, which checks that it is alive and handles its death."""

    def __init__(
        self, node_id: NodeId, setting: SimulationSetting, clock: NodeClock, seed: int
    ) -> None:
        self.node_id = node_id
        self.setting = setting
        self.clock = clock
        self.random = random_stream(seed, f"node {node_id}")
        self.disk = SimulatedDisk(random_stream(seed, f"disk {node_id}"), clock.wall_ms)
        self.generation = 0
        self.life = 0
        """Counts the starts and ends of the process."""
        self.is_up = False
        self.is_broken = False
        """Its disk failed for good: the node may return only as a new member."""
        self.sync_latency_us_max = SYNC_LATENCY_US_MAX
        self.process: SimulatedProcess | None = None
        """None while down, and until its journal is open."""
        self.neighbours: Sequence[SimulatedNode] = ()
        self._paused: list[Action] | None = None
        """Actions that arrived while the process is paused; None while it runs."""

    @property
    def member(self) -> MemberId:
        return member_id(self.node_id, self.generation)

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    @property
    def is_responsive(self) -> bool:
        return self.is_up and not self.is_paused

    @property
    def replicas(self) -> ReplicaSet | None:
        return None if self.process is None else self.process.replicas

    @property
    def partitions(self) -> dict[GroupId, Partition]:
        return {} if self.process is None else self.process.partitions

    @property
    def views(self) -> dict[GroupId, ReplicaView]:
        return {} if self.process is None else self.process.views

    # Starts and deaths

    def start(self) -> None:
        """Opens everything; the power may be cut while it does."""
        self.life += 1
        self.is_up = True
        self.setting.trace.note(f"n{self.node_id} starts life {self.life} as {self.member}")
        self.run(self._open)

    def _open(self) -> None:
        try:
            self.process = SimulatedProcess(self)
            self.process.open()
        except StorageFailed as error:
            self.fail(error)
            return
        self.later(self.random.randrange(TICK_US), self._tick)

    def fail(self, error: BaseException) -> None:
        """Ends a process that cannot continue. A failed sync of the journal makes the disk unusable."""
        if not isinstance(error, StorageFailed):
            raise error
        if "fsync" in str(error):
            self.is_broken = True
        self.die(f"storage: {error}", keeps_page_cache=True)

    def die(self, reason: str, *, keeps_page_cache: bool = False) -> None:
        """Ends the process. Unsynced data is lost unless `keeps_page_cache` (only the process died)."""
        if self.is_up:
            self.setting.trace.note(f"n{self.node_id} dies: {reason}")
            self.is_up = False
            self.life += 1
            self.process = None
            self._paused = None
            if keeps_page_cache:
                self.disk.process_died()
            else:
                self.disk.crash()

    def replace_disk(self) -> None:
        """Replaces the disk by an empty one; the node returns as a new member."""
        self.setting.observer.disk_lost(self.member)
        self.disk.wipe()
        self.generation += 1
        self.is_broken = False
        self.setting.trace.note(f"n{self.node_id} has a new disk, is {self.member}")

    def pause(self) -> None:
        if self.is_up and self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """Runs the backlog before any tick: see replication/replica_set."""
        backlog, self._paused = self._paused or [], None
        for action in backlog:
            self.run(action)

    # Events

    def run(self, action: Action) -> None:
        """Runs an action in the process if it is alive, then runs the checkers."""
        if not self.is_up:
            return
        if self._paused is not None:
            if len(self._paused) < BACKLOG_MAX:
                self._paused.append(self._bound(action))
            return
        try:
            action()
        except PowerCut:
            self.die("power cut")
            return
        except CorruptMessage as error:
            text = f"node {self.node_id}: {error}"
            raise InvariantViolation("nothing is damaged by itself", text) from error
        self.observe()

    def observe(self) -> None:
        """Runs the checkers on every replica."""
        if self.process is not None:
            self.process.check_sound()
            observer = self.setting.observer
            for view in self.process.views.values():
                observer.stepped(view)

    def _bound(self, action: Action) -> Action:
        life = self.life

        def bound() -> None:
            if life == self.life:
                action()

        return bound

    def reply_scheduler(self) -> Callable[[int, Action], None]:
        """Returns `later` for answers to requests of this life; the next life did not send them."""
        life = self.life

        def later(delay_us: int, action: Action) -> None:
            if life == self.life:
                self.later(delay_us, action)

        return later

    def later(self, delay_us: int, action: Action) -> None:
        """Runs the action after the delay, unless this life has ended by then."""
        bound = self._bound(action)
        self.setting.schedule.after(delay_us, lambda: self.run(bound))

    def sync_latency_us(self) -> int:
        return 50 + int(self.random.random() ** 3 * self.sync_latency_us_max)

    def _tick(self) -> None:
        if self.process is not None:
            self.process.replicas.tick()
            self.later(self.clock.true_us(TICK_US), self._tick)

    def deliver(self, envelope: PeerEnvelope) -> None:
        self.run(lambda: self._step(envelope))

    def _step(self, envelope: PeerEnvelope) -> None:
        read = received_by_codec if self.setting.uses_codec else received
        message = read(envelope)
        self.setting.trace.note(f"n{self.node_id} g{envelope.group} <- {brief(message)}")
        if self.process is not None:
            self.process.replicas.step(envelope.group, message)

    def unreachable(self, peer: NodeId) -> None:
        self.run(lambda: None if self.process is None else self.process.unreachable(peer))

    def reachable(self, peer: NodeId) -> None:
        self.run(lambda: None if self.replicas is None else self.replicas.reachable(peer))

    # ProcessHost: services for the process

    def send(self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        view = self.views.get(group)
        if view is not None:
            self.setting.observer.sends(view, message)
        copies = [None if blob is None else bytes(blob) for blob in blobs]
        self.setting.network.send(PeerEnvelope(self.node_id, node, group, message, copies))

    def lease_until(self, node: NodeId) -> float:
        """As in `links`: until then `node` does not consider this node silent."""
        last_contact_us = self.setting.network.last_contact_us(self.node_id, node)
        return self.clock.at(last_contact_us) + LEASE_SECONDS

    def request_batch(self, node: NodeId, body: bytes) -> SimulatedFuture:
        """Requests a batch over the link; without a link the answer is empty."""
        answer = SimulatedFuture()
        target = self.neighbours[node]
        delay_us = self.sync_latency_us()
        later = self.reply_scheduler()
        if not self.setting.network.is_up(self.node_id, node) or not target.is_responsive:
            later(delay_us, lambda: answer.set_result(b""))
            return answer

        def serve() -> None:
            found = b"" if target.process is None else target.process.scrubber.serve(body)
            later(delay_us, lambda: answer.set_result(found))

        target.later(delay_us, serve)
        return answer
