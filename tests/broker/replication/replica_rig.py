"""Three nodes with one group, on real logs. Nothing happens unless the test says so.

No threads and no time: messages, turns of the event loops and syncs wait in queues. `settle` runs
them until the queues are empty; `tick` advances every node by a tenth of a second. A node's disk
can be made to hang or be full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.broker.replication.no_peers import no_prefix
from tests.broker.storage.batches import make_batch
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.raft.ready import Leadership
from kafkaesque.broker.raft.types import LogIndex, Snapshot
from kafkaesque.broker.replication.flusher import Syncable
from kafkaesque.broker.replication.opening import batch_payload, open_replica
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica_set import RAFT_CONFIG, ReplicaSet
from kafkaesque.broker.replication.rules.entry_payload import Blob
from kafkaesque.broker.replication.rules.peer_codec import FrameWriter, GroupMessage, decode_frame
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import FIRST_PARTITION_GROUP, GroupId, MemberId, NodeId, Offset
from kafkaesque.records.batch import BatchHeader, read_header
from kafkaesque.testing.clock import ManualClock

GROUP = FIRST_PARTITION_GROUP
MEMBERS = (MemberId(0), MemberId(1), MemberId(2))
LENGTH_BYTES = 4
TOGETHER = 100
"""The limit of batches in flight."""


class RecordingStateMachine:
    """Records how far the group is committed."""

    waits_for_room = False

    def __init__(self) -> None:
        self.committed_end = Offset(0)
        self.failures: list[StorageFailed] = []

    def leadership_changed(self, leadership: Leadership) -> None: ...

    def committed(self, index: LogIndex, end_offset: Offset) -> None:
        self.committed_end = end_offset

    def appended(self, header: BatchHeader) -> None: ...

    def control(self, payload: bytes) -> None: ...

    def truncated(self, end_offset: Offset) -> None: ...

    def installing(self, snapshot: Snapshot) -> None: ...

    def installed(self, snapshot: Snapshot) -> None: ...

    def failed(self, error: StorageFailed) -> None:
        self.failures.append(error)


class RigNode:
    """Replaces a node's event loop, flusher and links."""

    sync_journal = None

    def __init__(self, trio: Trio, number: int, directory: Path) -> None:
        self.is_disk_stuck = False
        self.turns: deque[Callable[[], None]] = deque()
        self.syncs: dict[Syncable, None] = {}
        self._trio = trio
        self._calls = FailingCalls()
        self._files = OpenFiles(16, self._calls)
        self.clock = ManualClock(0)
        self.replicas = ReplicaSet(
            MEMBERS[number],
            RaftJournal.open(directory / "raft", self._files),
            self,
            self,
            no_prefix,
            self.clock,
            self.turns.append,
            _fail,
        )
        self.machine = RecordingStateMachine()
        log = Log.open(directory / "log", LogConfig(retention_ms=-1), self._files, clean=False)
        self.replica = open_replica(
            GROUP, log, MEMBERS, self.replicas, self.machine, RAFT_CONFIG, is_clean=False
        )
        self.replicas.add(self.replica)

    def request_sync(self, log: Syncable) -> None:
        self.syncs[log] = None

    def send(self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob]) -> None:
        writer = FrameWriter()
        writer.add(group, message, blobs)
        self._trio.frames.append((int(node), b"".join(writer.take())))

    def lease_until(self, node: NodeId) -> float:
        return 0.0

    def work(self) -> bool:
        """Do one thing that is due. Returns False if nothing is."""
        if self.turns:
            self.turns.popleft()()
        elif self.syncs and not self.is_disk_stuck:
            log = next(iter(self.syncs))
            del self.syncs[log]
            try:
                offset = log.sync()
            except StorageFailed as error:
                log.sync_failed(error)
            else:
                log.synced(offset)
        else:
            return False
        return True

    def fill_disk(self) -> None:
        self._calls.failing.add("pwrite")

    def make_room(self) -> None:
        self._calls.failing.clear()

    def close(self) -> None:
        self._files.close()


class Trio:
    def __init__(self, directory: Path) -> None:
        self.frames: deque[tuple[int, bytes]] = deque()
        """Node and frame, in flight."""
        self.cut_off: set[int] = set()
        """Nodes that receive nothing."""
        self.nodes = [RigNode(self, number, directory / str(number)) for number in range(3)]
        self.settle()

    def settle(self) -> None:
        while any(node.work() for node in self.nodes) or self._deliver():
            pass

    def _deliver(self) -> bool:
        if not self.frames:
            return False
        number, frame = self.frames.popleft()
        if number not in self.cut_off:
            for part in decode_frame(memoryview(frame)[LENGTH_BYTES:], batch_payload):
                assert isinstance(part, GroupMessage)
                self.nodes[number].replicas.step(part.group, part.message)
        return True

    def tick(self, count: int = 1) -> None:
        for _ in range(count):
            for node in self.nodes:
                node.replicas.tick()
            self.settle()

    def elect(self, number: int) -> None:
        self.nodes[number].replica.campaign()
        self.settle()
        assert self.leader == number

    @property
    def leader(self) -> int | None:
        """Returns the leader of the latest term; None while there is none that is confirmed."""
        leading = [
            (node.replica.leadership.term, number)
            for number, node in enumerate(self.nodes)
            if node.replica.is_leader
        ]
        return max(leading)[1] if leading else None

    @property
    def term(self) -> int:
        return max(int(node.replica.leadership.term) for node in self.nodes)

    def append(self, count: int = 1) -> None:
        """Append `count` batches at the leader."""
        assert self.leader is not None
        replica = self.nodes[self.leader].replica
        for number in range(1, count + 1):
            batch = make_batch(int(replica.next_offset), epoch=int(replica.leadership.term))
            replica.append(memoryview(batch), read_header(batch), 0)
            if number % TOGETHER == 0:
                self.settle()
        self.settle()

    def close(self) -> None:
        for node in self.nodes:
            node.close()


def _fail(error: BaseException) -> None:
    raise error
