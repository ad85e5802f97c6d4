"""One simulated broker: its disk, its clock, and how its process dies and returns.

No rules here: what arrives is passed on, what the product wants sent is handed to the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.replica_set import ReplicaSet
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.lab.sim.ground_truth import Violation
from kafkaesque.lab.sim.loop import SimulatedFuture
from kafkaesque.lab.sim.network import SILENCE_US, Envelope
from kafkaesque.lab.sim.process import Process, Setting
from kafkaesque.lab.sim.schedule import MILLISECOND_US, SECOND_US, Action, NodeClock, random_stream
from kafkaesque.lab.sim.transport import brief, received, received_by_codec
from kafkaesque.lab.sim.view import View
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import GroupId, MemberId, NodeId, member_id

TICK_US: Final = 25 * MILLISECOND_US
SYNC_LATENCY_US_MAX: Final = 4 * MILLISECOND_US
LEASE_SECONDS: Final = SILENCE_US / SECOND_US * 0.5
"""As broker/node has it, in proportion: a lease has to end before the patience of whoever heard the
last heartbeat before the ping, two ticks earlier."""
BACKLOG_MAX: Final = 3_000


class SimulatedNode:
    """`run` is the only way in: it knows whether the process lives, and catches its death."""

    def __init__(self, node_id: NodeId, setting: Setting, clock: NodeClock, seed: int) -> None:
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
        """Its disk failed for good: it may come back only as another member."""
        self.sync_latency_us_max = SYNC_LATENCY_US_MAX
        self.process: Process | None = None
        """None while down, and until its journal is open."""
        self.neighbours: Sequence[SimulatedNode] = ()
        self._paused: list[Action] | None = None
        """What arrived while the process is stopped; None while it runs."""

    @property
    def member(self) -> MemberId:
        return member_id(self.node_id, self.generation)

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    @property
    def can_talk(self) -> bool:
        return self.is_up and not self.is_paused

    @property
    def replicas(self) -> ReplicaSet | None:
        return None if self.process is None else self.process.replicas

    @property
    def partitions(self) -> dict[GroupId, Partition]:
        return {} if self.process is None else self.process.partitions

    @property
    def views(self) -> dict[GroupId, View]:
        return {} if self.process is None else self.process.views

    # Life and death

    def start(self) -> None:
        """Open everything; a power cut may come on the way."""
        self.life += 1
        self.is_up = True
        self.setting.trace.note(f"n{self.node_id} starts life {self.life} as {self.member}")
        self.run(self._open)

    def _open(self) -> None:
        try:
            self.process = Process(self)
            self.process.open()
        except StorageFailed as error:
            self.fail(error)
            return
        self.later(self.random.randrange(TICK_US), self._tick)

    def fail(self, error: BaseException) -> None:
        """The process cannot go on. A refused sync of the journal is fatal for the disk."""
        if not isinstance(error, StorageFailed):
            raise error
        if "fsync" in str(error):
            self.is_broken = True
        self.die(f"storage: {error}", keeps_page_cache=True)

    def die(self, reason: str, *, keeps_page_cache: bool = False) -> None:
        """The process ends, and with it what was not synced unless only the process died."""
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
        """Come back with an empty disk: as another member."""
        self.setting.observer.disk_lost(self.member)
        self.disk.wipe()
        self.generation += 1
        self.is_broken = False
        self.setting.trace.note(f"n{self.node_id} has a new disk, is {self.member}")

    def pause(self) -> None:
        if self.is_up and self._paused is None:
            self._paused = []

    def resume(self) -> None:
        """What has arrived is read before any tick: see replication/replica_set."""
        backlog, self._paused = self._paused or [], None
        for action in backlog:
            self.run(action)

    # What happens to it

    def run(self, action: Action) -> None:
        """Let the process do something, if it lives; the checkers look at the outcome."""
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
            raise Violation("nothing is damaged by itself", text) from error
        self.observe()

    def observe(self) -> None:
        """Let the checkers look at every replica."""
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

    def mailbox(self) -> Callable[[int, Action], None]:
        """`later`, for the answers to what is asked in this life: the next one did not ask."""
        life = self.life

        def later(delay_us: int, action: Action) -> None:
            if life == self.life:
                self.later(delay_us, action)

        return later

    def later(self, delay_us: int, action: Action) -> None:
        """In this life or not at all."""
        bound = self._bound(action)
        self.setting.schedule.after(delay_us, lambda: self.run(bound))

    def sync_latency_us(self) -> int:
        return 50 + int(self.random.random() ** 3 * self.sync_latency_us_max)

    def _tick(self) -> None:
        if self.process is not None:
            self.process.replicas.tick()
            self.later(self.clock.true_us(TICK_US), self._tick)

    def deliver(self, envelope: Envelope) -> None:
        self.run(lambda: self._step(envelope))

    def _step(self, envelope: Envelope) -> None:
        read = received_by_codec if self.setting.uses_codec else received
        message = read(envelope)
        self.setting.trace.note(f"n{self.node_id} g{envelope.group} <- {brief(message)}")
        if self.process is not None:
            self.process.replicas.step(envelope.group, message)

    def unreachable(self, peer: NodeId) -> None:
        self.run(lambda: None if self.process is None else self.process.unreachable(peer))

    def reachable(self, peer: NodeId) -> None:
        self.run(lambda: None if self.replicas is None else self.replicas.reachable(peer))

    # What the process asks of it: Body

    def send(self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        view = self.views.get(group)
        if view is not None:
            self.setting.observer.sends(view, message)
        copies = [None if blob is None else bytes(blob) for blob in blobs]
        self.setting.network.send(Envelope(self.node_id, node, group, message, copies))

    def lease_until(self, node: NodeId) -> float:
        """As links say it: until then `node` does not call us silent."""
        heard_us = self.setting.network.heard_us(self.node_id, node)
        return self.clock.at(heard_us) + LEASE_SECONDS

    def ask(self, node: NodeId, body: bytes) -> SimulatedFuture:
        """A call over the link, for a batch; without a link the answer is empty."""
        answer = SimulatedFuture()
        target = self.neighbours[node]
        delay_us = self.sync_latency_us()
        later = self.mailbox()
        if not self.setting.network.is_up(self.node_id, node) or not target.can_talk:
            later(delay_us, lambda: answer.set_result(b""))
            return answer

        def serve() -> None:
            found = b"" if target.process is None else target.process.scrubber.serve(body)
            later(delay_us, lambda: answer.set_result(found))

        target.later(delay_us, serve)
        return answer
