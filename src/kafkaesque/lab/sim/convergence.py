"""The checks of the recovery phase: all nodes agree, nothing is outstanding, all logs are equal."""

from __future__ import annotations

from kafkaesque.broker.partitions.producer_state import load_producers
from kafkaesque.broker.raft.types import NO_TERM, LogIndex
from kafkaesque.broker.storage.log import Log
from kafkaesque.lab.sim.cluster import SimulatedCluster
from kafkaesque.lab.sim.ground_truth import batch_fact, require
from kafkaesque.lab.sim.node import SimulatedNode
from kafkaesque.model.ids import GroupId, Offset

BATCHES_IN_PEACE = 2
_ALL_BYTES = 1 << 30


class Convergence:
    """Checks whether the cluster has recovered; `what_is_missing` is the reason if it has not."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._wanted = {
            id(producer): producer.acked_count + BATCHES_IN_PEACE for producer in cluster.producers
        }
        self.what_is_missing = ""

    def is_reached(self) -> bool:
        for producer in self._cluster.producers:
            if producer.acked_count >= self._wanted[id(producer)]:
                producer.is_finishing = True
        self.what_is_missing = self._first_unmet_condition()
        return not self.what_is_missing

    def _first_unmet_condition(self) -> str:
        cluster = self._cluster
        for producer in cluster.producers:
            if not producer.is_finishing or producer.outstanding_count:
                return f"a producer of group {producer.group} waits"
        for transactor in cluster.transactors:
            transactor.is_finishing = True
            if not transactor.is_finished:
                return "a transactional producer waits"
        if not cluster.operator.is_settled():
            return "the members are not the intended ones"
        for group in cluster.groups:
            indexes = {self._indexes(node, group) for node in cluster.nodes}
            if len(indexes) != 1 or None in indexes:
                return f"group {group} is at {indexes}"
        if "flip_bit" in cluster.profile.weights:
            return self._first_damage()
        return ""

    def _first_damage(self) -> str:
        for node in self._cluster.nodes:
            for group, view in node.views.items():
                found = view.entries.verify(LogIndex(0), _ALL_BYTES)
                for entry in found.damaged:
                    if self._exists_elsewhere(entry.index, group, node):
                        return f"{view} has damage that is not repaired: {entry}"
        return ""

    def _exists_elsewhere(self, index: LogIndex, group: GroupId, node: SimulatedNode) -> bool:
        """Whether another node still has the entry: retention may have deleted it on all of them."""
        others = [one.views.get(group) for one in self._cluster.nodes if one is not node]
        return any(view is not None and view.entries.first_index <= index for view in others)

    def _indexes(self, node: SimulatedNode, group: GroupId) -> tuple[int, int, int] | None:
        view = node.views.get(group)
        if view is None:
            return None
        state = view.state
        ends = {
            state.commit_index,
            state.log.last_index,
            state.log.durable_index,
            view.entries.last_index,
        }
        if len(ends) != 1 or state.leader_id is None:
            return None
        return state.term, state.commit_index, state.leader_id

    def check_contents(self) -> None:
        """Check that all logs are equal byte for byte and contain what was committed."""
        cluster = self._cluster
        for group in cluster.groups:
            truth = cluster.observer.groups[group]
            committed = {
                one.fact.base_offset: one
                for one in truth.committed
                if one.fact and one.fact.is_batch
            }
            end = truth.committed_end_offset()
            for node in cluster.nodes:
                view = node.views[group]
                log = view.entries.log
                view.raft.validate()
                require(log.log_end_offset == end, "logs are equal", f"{view} ends elsewhere")
                expected = log.log_start_offset
                for header in log.headers_from(log.log_start_offset):
                    known = committed.get(header.base_offset)
                    is_same = (
                        known is not None
                        and known.fact is not None
                        and known.fact.identity == batch_fact(header, NO_TERM).identity
                        and int(known.term) == header.leader_epoch
                    )
                    require(is_same, "logs are equal", f"{view} at {header.base_offset}")
                    require(header.base_offset <= expected, "offsets are dense", view)
                    expected = header.next_offset
                require(expected == end, "logs are equal", f"{view} lacks {expected}..{end}")
            self._check_bytes(group)
            self._check_producers(group)
        self._check_transactions()

    def _check_transactions(self) -> None:
        cluster = self._cluster
        transactions = cluster.observer.transactions
        if transactions is None:
            return
        led = {
            group: (node.views[group], partition)
            for node in cluster.nodes
            for group, partition in node.partitions.items()
            if partition.leads
        }
        transactions.check_ends(led)

    def _check_bytes(self, group: GroupId) -> None:
        entries = [node.views[group].entries for node in self._cluster.nodes]
        logs = [one.log for one in entries]
        # Deleted data may still be there if the disk refused its removal; it is not repaired.
        start = max(max(one.log.log_start_offset, one.folded_offset) for one in entries)
        contents = {bytes(_read(log, start)) for log in logs}
        require(len(contents) == 1, "logs are equal", f"group {group} differs in its bytes")

    def _check_producers(self, group: GroupId) -> None:
        for node in self._cluster.nodes:
            partition = node.partitions.get(group)
            if partition is not None and partition.leads:
                kept = partition.producers
                replayed = load_producers(partition.replica.entries)
                is_same = dict(kept.items()) == dict(replayed.items())
                require(is_same, "producers are a fold of the log", f"group {group}")


def _read(log: Log, start: Offset) -> bytes:
    content, offset = b"", start
    while offset < log.log_end_offset:
        result = log.read(offset, 1 << 20, limit_offset=log.log_end_offset)
        content += result.records
        offset = result.next_offset
    return content
