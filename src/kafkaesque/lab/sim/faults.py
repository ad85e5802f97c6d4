"""What goes wrong and when: one fault after the other, chosen by chance from the profile.

Each fault is a method of `Faults` named as in the profile's weights. Damage that Raft does not
promise to survive is bounded: the disks of a minority only are ever lost, and the next one only
when the last is replaced.
"""

from __future__ import annotations

from kafkaesque.lab.sim.chance import chance
from kafkaesque.lab.sim.network import Weather
from kafkaesque.lab.sim.node import SYNC_LATENCY_US_MAX, SimulatedNode
from kafkaesque.lab.sim.schedule import MILLISECOND_US, Action
from kafkaesque.lab.sim.world import World
from kafkaesque.model.ids import NodeId
from kafkaesque.records.batch import HEADER_SIZE_BYTES


class Faults:
    """Strikes until `stop`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._profile = world.profile
        self._random = chance(world.seed, "faults")
        self._is_over = False
        self._names = list(world.profile.weights)
        self._actions: dict[str, Action] = {name: getattr(self, name) for name in self._names}

    def start(self) -> None:
        if self._names:
            self._plan()

    def stop(self) -> None:
        """Peace: everything that can be mended is."""
        self._is_over = True
        world = self._world
        world.network.cuts.clear()
        world.network.weather = Weather()
        for node in world.nodes:
            node.disk.faults.is_full = False
            node.disk.faults.sync_failures = 0
            node.disk.faults.calls_to_power_cut = -1
            node.sync_latency_us_max = SYNC_LATENCY_US_MAX
            node.resume()
            self._start(node)

    def _plan(self) -> None:
        delay_us = self._random.randrange(1, 2 * self._profile.fault_interval_us)
        self._world.schedule.after(delay_us, self._strike)

    def _strike(self) -> None:
        if self._is_over:
            return
        weights = [self._profile.weights[name] for name in self._names]
        (name,) = self._random.choices(self._names, weights)
        self._world.trace.note(f"fault {name}")
        self._actions[name]()
        self._plan()

    # The network

    def _pair(self) -> tuple[NodeId, NodeId]:
        one, other = self._random.sample(self._world.nodes, 2)
        return one.node_id, other.node_id

    def cut_one_way(self) -> None:
        self._world.network.cuts.add(self._pair())

    def cut_pair(self) -> None:
        a, b = self._pair()
        self._world.network.cuts |= {(a, b), (b, a)}

    def isolate(self) -> None:
        """One node from all others; often a leader, where it hurts."""
        chosen = self._leader_or_any().node_id
        for node in self._world.nodes:
            if node.node_id != chosen:
                pairs = {(chosen, node.node_id), (node.node_id, chosen)}
                self._world.network.cuts |= pairs

    def ring(self) -> None:
        """Each hears only the one before it."""
        ids = [node.node_id for node in self._world.nodes]
        heard = {(ids[number - 1], ids[number]) for number in range(len(ids))}
        all_pairs = {(a, b) for a in ids for b in ids if a != b}
        self._world.network.cuts |= all_pairs - heard

    def heal(self) -> None:
        self._world.network.cuts.clear()

    # Processes and power

    def _any(self) -> SimulatedNode:
        return self._random.choice(self._world.nodes)

    def _leader_or_any(self) -> SimulatedNode:
        leaders = [
            node
            for node in self._world.nodes
            if any(partition.leads for partition in node.partitions.values())
        ]
        return (
            self._random.choice(leaders) if leaders and self._random.random() < 0.6 else self._any()
        )

    def kill(self) -> None:
        """The process dies, its host lives: links are reset at once, the page cache stays."""
        node = self._leader_or_any()
        node.die("killed", keeps_page_cache=True)
        self._world.network.broke(node.node_id)

    def power_cut(self) -> None:
        self._leader_or_any().die("power cut")

    def power_cut_within(self) -> None:
        """In the middle of whatever the disk is asked for soon."""
        self._leader_or_any().disk.faults.calls_to_power_cut = self._random.randrange(12)

    def kill_all(self) -> None:
        for node in self._world.nodes:
            node.die("power cut of all")

    def restart(self) -> None:
        down = [node for node in self._world.nodes if not node.is_up]
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
        for node in self._world.nodes:
            node.resume()

    # Disks

    def slow_disk(self) -> None:
        node = self._any()
        node.sync_latency_us_max = self._random.choice((1, 4, 60, 300)) * MILLISECOND_US

    def full(self) -> None:
        self._leader_or_any().disk.faults.is_full = True

    def room(self) -> None:
        for node in self._world.nodes:
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
        """A minority at a time: everyone else has its disk and is a member everywhere. Where bits
        flip one disk is bad already, and what was damaged there may have no other copy than the one
        that would be lost (a follower may lack what is committed)."""
        return "flip_bit" not in self._names and self._world.operator.is_content()

    def flip_bit(self) -> None:
        """In the body of a batch of a closed segment, of one node only: see docs/SIMULATION.md."""
        node = self._world.nodes[self._world.seed % len(self._world.nodes)]
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
        self._world.operator.transfer(self._random)

    def resign(self) -> None:
        self._world.operator.resign(self._random)

    def remove_member(self) -> None:
        self._world.operator.swap_wish(self._random)

    def retention(self) -> None:
        self._world.operator.retain(self._random)

    def save_producers(self) -> None:
        self._world.operator.save_producers(self._random)
