"""Injects one random fault after another, with the weights of the profile.

Each fault is a method of `FaultInjector` with the name used in the profile's weights. Damage that Raft does not
survive is avoided: only the disks of a minority are ever lost, and the next one only when the last has
been replaced.
"""

from __future__ import annotations

from kafkaesque.lab.sim.cluster import SimulatedCluster
from kafkaesque.lab.sim.network import LinkQuality
from kafkaesque.lab.sim.node import SYNC_LATENCY_US_MAX, SimulatedNode
from kafkaesque.lab.sim.schedule import MILLISECOND_US, Action, random_stream
from kafkaesque.model.ids import NodeId
from kafkaesque.records.layout import HEADER_SIZE_BYTES


class FaultInjector:
    """Injects faults until `stop`."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._profile = cluster.profile
        self._random = random_stream(cluster.seed, "faults")
        self._is_over = False
        self._names = list(cluster.profile.weights)
        self._actions: dict[str, Action] = {name: getattr(self, name) for name in self._names}

    def start(self) -> None:
        if self._names:
            self._plan()

    def stop(self) -> None:
        """Stop injecting, and undo every fault that can be undone."""
        self._is_over = True
        cluster = self._cluster
        cluster.network.cuts.clear()
        cluster.network.link_quality = LinkQuality()
        for node in cluster.nodes:
            node.disk.faults.is_full = False
            node.disk.faults.sync_failures = 0
            node.disk.faults.calls_to_power_cut = -1
            node.sync_latency_us_max = SYNC_LATENCY_US_MAX
            node.resume()
            self._start(node)

    def _plan(self) -> None:
        delay_us = self._random.randrange(1, 2 * self._profile.fault_interval_us)
        self._cluster.schedule.after(delay_us, self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        weights = [self._profile.weights[name] for name in self._names]
        (name,) = self._random.choices(self._names, weights)
        self._cluster.trace.note(f"fault {name}")
        self._actions[name]()
        self._plan()

    # The network

    def _pair(self) -> tuple[NodeId, NodeId]:
        one, other = self._random.sample(self._cluster.nodes, 2)
        return one.node_id, other.node_id

    def cut_one_way(self) -> None:
        self._cluster.network.cuts.add(self._pair())

    def cut_pair(self) -> None:
        a, b = self._pair()
        self._cluster.network.cuts |= {(a, b), (b, a)}

    def isolate(self) -> None:
        """Cut one node, often a leader, off from all others."""
        chosen = self._leader_or_any().node_id
        for node in self._cluster.nodes:
            if node.node_id != chosen:
                pairs = {(chosen, node.node_id), (node.node_id, chosen)}
                self._cluster.network.cuts |= pairs

    def ring(self) -> None:
        """Each node receives messages only from its predecessor."""
        ids = [node.node_id for node in self._cluster.nodes]
        heard = {(ids[number - 1], ids[number]) for number in range(len(ids))}
        all_pairs = {(a, b) for a in ids for b in ids if a != b}
        self._cluster.network.cuts |= all_pairs - heard

    def heal(self) -> None:
        self._cluster.network.cuts.clear()

    # Processes and power

    def _any(self) -> SimulatedNode:
        return self._random.choice(self._cluster.nodes)

    def _leader_or_any(self) -> SimulatedNode:
        leaders = [
            node
            for node in self._cluster.nodes
            if any(partition.leads for partition in node.partitions.values())
        ]
        return (
            self._random.choice(leaders) if leaders and self._random.random() < 0.6 else self._any()
        )

    def kill(self) -> None:
        """The process dies, its host does not: links are reset at once, the page cache survives."""
        node = self._leader_or_any()
        node.die("killed", keeps_page_cache=True)
        self._cluster.network.reset_links(node.node_id)

    def power_cut(self) -> None:
        self._leader_or_any().die("power cut")

    def power_cut_within(self) -> None:
        """Cut the power within one of the next disk calls."""
        self._leader_or_any().disk.faults.calls_to_power_cut = self._random.randrange(12)

    def kill_all(self) -> None:
        for node in self._cluster.nodes:
            node.die("power cut of all")

    def restart(self) -> None:
        down = [node for node in self._cluster.nodes if not node.is_up]
        if down:
            self._start(self._random.choice(down))

    def _start(self, node: SimulatedNode) -> None:
        if not node.is_up:
            if node.is_broken:
                node.replace_disk()
            node.start()

    def pause(self) -> None:
        self._leader_or_any().pause()

    def resume(self) -> None:
        for node in self._cluster.nodes:
            node.resume()

    # Disks

    def slow_disk(self) -> None:
        node = self._any()
        node.sync_latency_us_max = self._random.choice((1, 4, 60, 300)) * MILLISECOND_US

    def full(self) -> None:
        self._leader_or_any().disk.faults.is_full = True

    def room(self) -> None:
        for node in self._cluster.nodes:
            node.disk.faults.is_full = False

    def sync_failure(self) -> None:
        if self._may_lose_a_disk():
            self._leader_or_any().disk.faults.sync_failures = 1

    def wipe(self) -> None:
        if self._may_lose_a_disk():
            node = self._leader_or_any()
            node.die("wiped")
            node.is_broken = True

    def _may_lose_a_disk(self) -> bool:
        """Only a minority may lose its disk: all others must have theirs and be members of every group.

        Where bits flip, one disk is damaged already, and the disk that would be lost may have the only
        intact copy (a follower may lack committed entries).
        """
        return "flip_bit" not in self._names and self._cluster.operator.is_settled()

    def flip_bit(self) -> None:
        """Flip a bit in the body of a batch of a closed segment, on one node only: docs/SIMULATION.md."""
        node = self._cluster.nodes[self._cluster.seed % len(self._cluster.nodes)]
        groups = list(node.partitions)
        if not groups:
            return
        log = node.partitions[self._random.choice(groups)].log
        closed = [one for one in log.segments[:-1] if one.size_bytes > 0]
        if closed and not log.needs_sync:
            segment = self._random.choice(closed)
            chain_segment = log.segment(segment.base_offset)
            batches = list(chain_segment.headers(log.files, 0))
            position, header = self._random.choice(batches)
            inode = node.disk.inode_at(chain_segment.file.path)
            if inode is not None:
                body = self._random.randrange(HEADER_SIZE_BYTES, header.size_bytes)
                inode.flip_bit(position + body, self._random.randrange(8))

    # Clocks

    def jump(self) -> None:
        self._any().clock.wall_offset_ms = self._random.choice((-1_800_000, -500, 0, 1_800_000))

    # The operator

    def transfer(self) -> None:
        self._cluster.operator.transfer(self._random)

    def resign(self) -> None:
        self._cluster.operator.resign(self._random)

    def remove_member(self) -> None:
        self._cluster.operator.toggle_membership(self._random)

    def retention(self) -> None:
        self._cluster.operator.retain(self._random)

    def save_producers(self) -> None:
        self._cluster.operator.save_producers(self._random)
