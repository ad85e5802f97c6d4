"""Runs against the disk: torn tails, power cuts, flipped bits, full disks, slow syncs."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import ClassVar, Final

from kafkaesque.lab.faults import shims, small_disk
from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.checks.history import DestroyedRange, Function, OperationOutcome
from kafkaesque.lab.faults.cluster_run import ClusterRun, ShimmedRun
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext
from kafkaesque.lab.faults.log_files import (
    StoredBatch,
    segment_paths,
    stored_batches,
    synced_position,
)
from kafkaesque.lab.faults.power import PoweredDisk
from kafkaesque.lab.faults.shims import NumberShim, slow_sync_shim
from kafkaesque.lab.harness.cluster import BrokerSettings, SingleBroker, Target, TargetFailed

# -- torn tails -----------------------------------------------------------------------------------

_HALF_BATCH_BYTES_MAX: Final = 400


class TornTail(FaultRun):
    purpose = "kill -9, then cut, garble or extend every log after its sync point"
    promise = "the torn tail is cut, and nothing acknowledged was in it"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.3, 2.0):
            context.fault("kill -9 node 0 and tear the tails of its logs")
            context.target.kill(0)
            for segment in segment_paths(context.target.data(0)):
                torn = tear(segment, synced_position(segment), context.random)
                context.count("torn_bytes", torn)
                context.count("torn_segments", torn > 0)
            context.target.bring_up(0)


def tear(segment: Path, synced: int, rng: random.Random) -> int:
    """Damage the bytes after `synced` if this is the last segment; returns how many are affected."""
    size = segment.stat().st_size
    if segment != max(segment.parent.glob("*.log")):
        return 0
    with segment.open("r+b") as file:
        match rng.choice(["cut", "garble", "half a batch", "zeros"]):
            case "cut":
                file.truncate(rng.randint(synced, max(synced, size)))
            case "garble":
                file.seek(synced)
                file.write(rng.randbytes(max(0, size - synced)))
            case "half a batch":
                head = file.read(rng.randint(1, _HALF_BATCH_BYTES_MAX))
                file.seek(0, 2)
                file.write(head)
            case _:
                file.seek(0, 2)
                file.write(bytes(rng.randint(1, _HALF_BATCH_BYTES_MAX)))
        return max(abs(file.seek(0, 2) - size), size - synced)


# -- power cuts -----------------------------------------------------------------------------------


class SinglePowerCut(FaultRun):
    purpose = "cut the power: unsynced bytes and names are lost, garbled or come back older"
    promise = "nothing acknowledged is lost; with flush=never some is, which shows the cut works"
    control: ClassVar[BrokerSettings | None] = {"flush": "never"}
    _disk: PoweredDisk

    def impossible(self) -> str | None:
        return shims.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self._disk = PoweredDisk(directory / "data", directory / "power")
        with closing(SingleBroker(directory, settings, self._disk.environment)) as target:
            yield target

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.3, 2.0):
            if context.random.random() < 0.2:
                # So that a cut also hits the files that a clean stop leaves.
                context.fault("stop and start node 0")
                context.target.terminate(0)
                context.target.bring_up(0)
                time.sleep(context.random.uniform(0.0, 0.2))
            context.fault("power cut of node 0")
            context.target.kill(0)
            _cut_power(context, self._disk)
            context.target.bring_up(0)

    def complaints(self, context: FaultRunContext) -> list[str]:
        return _missing_shim(context)


class ClusterPowerCut(ShimmedRun[PoweredDisk]):
    purpose = "cut the power of one, two and all brokers: what was not synced is lost or garbled"
    promise = "nothing acknowledged is lost; with flush=never some is, which shows the cut works"
    control: ClassVar[BrokerSettings | None] = {"flush": "never"}

    def new_shim(self, directory: Path, node: int) -> PoweredDisk:
        return PoweredDisk(directory / f"broker-{node}" / "data", directory / f"power-{node}")

    def inject(self, context: FaultRunContext) -> None:
        count = 0
        while context.another_round(0.5, 2.0):
            # All brokers first: in the control, only a cut of all of them must lose records.
            count = count % self.brokers + 1
            nodes = context.random.sample(list(self.cluster.nodes), self.brokers + 1 - count)
            context.fault(f"power cut of nodes {nodes}", self.keys_led_by(context, nodes))
            self.cluster.kill(*nodes)
            for node in nodes:
                _cut_power(context, self.shims[node])
            self.cluster.bring_up(*nodes)
            self.cluster.wait_recovered()

    def complaints(self, context: FaultRunContext) -> list[str]:
        return super().complaints(context) + _missing_shim(context)


def _cut_power(context: FaultRunContext, disk: PoweredDisk) -> None:
    before = disk.syncs_seen
    losses = disk.cut(context.random)
    context.count("cuts")
    context.count("syncs_seen", disk.syncs_seen - before)
    context.count("bytes_lost", losses.bytes_lost)
    context.count("bytes_garbled", losses.bytes_garbled)
    context.count("names_undone", losses.names_undone)


def _missing_shim(context: FaultRunContext) -> list[str]:
    return [] if context.notes.get("syncs_seen") else ["the shim saw no sync: it is not in place"]


# -- flipped bits ---------------------------------------------------------------------------------

_REPAIRED_WITHIN_S: Final = 60.0
_RESTART_SHARE: Final = 0.3


class SingleFlippedBit(FaultRun):
    purpose = "flip one bit in batches on disk, with and without a restart after it"
    promise = "a damaged batch is never served and is reported; all others are served"

    def __init__(self) -> None:
        self._flipped: list[StoredBatch] = []

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.5):
            batch = _choose_batch(context, 0, self._flipped)
            if batch is None:
                continue
            bit = context.random.randrange(batch.size_bytes * 8)
            context.fault(_describe(batch, bit))
            flip(batch, bit)
            self._flipped.append(batch)
            context.damaged.append(DestroyedRange(batch.key, batch.first_offset, batch.last_offset))
            context.count("flips")
            if context.random.random() < _RESTART_SHARE:
                context.say("kill -9 node 0")
                context.target.kill(0)
                context.target.bring_up(0)

    def complaints(self, context: FaultRunContext) -> list[str]:
        log = context.target.log_text(0)
        return [
            f"the broker's log does not name {batch.path}, damaged at position {batch.position}"
            for batch in self._flipped
            if str(batch.path) not in log
        ]


class FlippedBit(ClusterRun):
    purpose = "flip one bit in a batch of one replica, with and without a restart after it"
    promise = "it is never served and is repaired from a peer; nothing is lost or repeated"

    def __init__(self) -> None:
        super().__init__()
        self._flipped: list[tuple[StoredBatch, bytes]] = []
        """Each batch with its original bytes."""

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.5):
            node = context.random.choice(self.cluster.nodes)
            batch = _choose_batch(context, node, [one for one, _ in self._flipped])
            if batch is None:
                continue
            bit = context.random.randrange(batch.size_bytes * 8)
            context.fault(f"node {node}: {_describe(batch, bit)}", [batch.key])
            self._flipped.append((batch, _read(batch)))
            flip(batch, bit)
            context.count("flips")
            if context.random.random() < _RESTART_SHARE:
                context.say(f"kill -9 node {node}")
                self.cluster.kill(node)
                self.cluster.bring_up(node)
                self.cluster.wait_recovered()
        self._wait_for_repairs(context)

    def _wait_for_repairs(self, context: FaultRunContext) -> None:
        """Batches that no client reads are repaired by the scrubber."""
        context.say("waiting for repairs")
        began_at = time.monotonic()
        self.cluster.wait_for(
            "repairs of all damaged batches",
            lambda: all(_read(batch) == before for batch, before in self._flipped),
            _REPAIRED_WITHIN_S,
        )
        context.notes["last_repair_ms"] = int((time.monotonic() - began_at) * 1000)

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = super().complaints(context)
        logs = "".join(self.cluster.log_text(node) for node in self.cluster.nodes)
        logged = logs.count("repaired damaged entry")
        context.notes["repairs_told"] = logged
        if logged < len(self._flipped):
            found.append(f"the logs report {logged} of {len(self._flipped)} repair(s)")
        return found


def _choose_batch(
    context: FaultRunContext, node: int, hit: Sequence[StoredBatch]
) -> StoredBatch | None:
    """A batch on the node's disk that is not in `hit`."""
    places = {(batch.path, batch.position) for batch in hit}
    segments = [path for path in segment_paths(context.target.data(node)) if path.stat().st_size]
    context.random.shuffle(segments)
    for path in segments:
        batches = [b for b in stored_batches(path) if (b.path, b.position) not in places]
        if batches:
            return context.random.choice(batches)
    return None


def _describe(batch: StoredBatch, bit: int) -> str:
    return (
        f"flip bit {bit} of the batch at position {batch.position} of "
        f"{batch.path.parent.name}/{batch.path.name} (key {batch.key}, "
        f"offsets {batch.first_offset} to {batch.last_offset})"
    )


def _read(batch: StoredBatch) -> bytes:
    with batch.path.open("rb") as file:
        file.seek(batch.position)
        return file.read(batch.size_bytes)


def flip(batch: StoredBatch, bit: int) -> None:
    with batch.path.open("r+b") as file:
        position = batch.position + bit // 8
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ (1 << bit % 8)]))


# -- full disks -----------------------------------------------------------------------------------

_FULL_ALONE_S: Final = (0.5, 3.0)
_FULL_S: Final = (2.0, 4.0)
_CREATED_WITHIN_S: Final = 20.0
_DISK_FULL_MESSAGE: Final = "No space left"


class SingleDiskFull(FaultRun):
    purpose = "leave no byte free on the broker's disk for up to 3 s, then make room"
    promise = "records are refused, not lost; the broker resumes by itself when there is room"

    def impossible(self) -> str | None:
        return small_disk.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        with (
            small_disk.small_disk(directory / "data"),
            closing(SingleBroker(directory, settings)) as target,
        ):
            yield target

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 2.0):
            context.fault("the disk of node 0 is full")
            small_disk.fill(context.target.data(0))
            context.count("times_full")
            time.sleep(context.random.uniform(*_FULL_ALONE_S))
            _make_room(context, 0)

    def complaints(self, context: FaultRunContext) -> list[str]:
        return _missing_disk_full_message(context)


class DiskFull(ClusterRun):
    purpose = "leave no byte free on one broker's disk for up to 4 s, then make room"
    promise = "the others serve meanwhile, it comes back by itself; nothing is lost or repeated"

    def impossible(self) -> str | None:
        return small_disk.impossible()

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        with contextlib.ExitStack() as disks:
            for node in range(self.brokers):
                place = directory / f"broker-{node}" / "data"
                disks.enter_context(small_disk.small_disk(place))
            with super().open_target(directory, settings) as target:
                yield target

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 2.0):
            node = context.random.choice(self.cluster.nodes)
            keys = self.keys_led_by(context, [node])
            context.fault(f"the disk of node {node}, which leads keys {keys}, is full", keys)
            room_at = time.monotonic() + context.random.uniform(*_FULL_S)
            small_disk.fill(self.cluster.data(node))
            context.count("times_full")
            self.wait_until_served(context)
            self._create_topic(context, node)
            time.sleep(max(0.0, room_at - time.monotonic()))
            _make_room(context, node)
            self.cluster.wait_recovered()

    def _create_topic(self, context: FaultRunContext, full: int) -> None:
        """The full broker gets a replica of the new topic, and cannot even write that it has one."""
        other = context.random.choice([node for node in self.cluster.nodes if node != full])
        context.count("topics_made")
        name = f"meanwhile-{context.notes['topics_made']}"
        with closing(self.cluster.admin(other, _CREATED_WITHIN_S)) as admin:
            refusal = admin.create_topic(name, self.brokers)
        if refusal is not None:
            raise TargetFailed(f"topic {name} could not be created: {refusal}")

    def complaints(self, context: FaultRunContext) -> list[str]:
        return super().complaints(context) + _missing_disk_full_message(context)


def _make_room(context: FaultRunContext, node: int) -> None:
    """Free the node's disk; in some rounds, kill the node before and start it after."""
    dies = context.random.random() < 0.3
    if dies:
        context.say(f"kill -9 node {node} on a full disk")
        context.target.kill(node)
        context.count("kills_when_full")
    small_disk.make_room(context.target.data(node))
    context.say(f"the disk of node {node} has room again")
    if dies:
        context.target.bring_up(node)


def _missing_disk_full_message(context: FaultRunContext) -> list[str]:
    logs = (context.target.log_text(node) for node in context.target.nodes)
    if any(_DISK_FULL_MESSAGE in log for log in logs):
        return []
    return ["no broker logged a full disk"]


# -- slow syncs -----------------------------------------------------------------------------------

_DELAY_US_FOLLOWER: Final = 500_000
_DELAY_US_LEADER: Final = 3_000_000
"""Longer than a leader waits for its own disk before it steps down."""
_SLOW_S: Final = 5.0
_QUIET_S: Final = 0.5
"""Load without a fault before each round: the baseline for the load with a slow follower."""
_ADDED_MS_MAX: Final = 250
"""Half of the delay. A client that waits for the slow follower waits for all of it."""
_ADDED: Final = "slow_follower_added_ms_p50"


class SlowDisk(ShimmedRun[NumberShim]):
    purpose = "slow down every sync of a follower by 0.5 s, then every sync of a leader by 3 s"
    promise = "a slow follower delays nobody, a slow leader steps down; nothing is lost or repeated"

    def new_shim(self, directory: Path, node: int) -> NumberShim:
        return slow_sync_shim(directory / "shims", node)

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(_QUIET_S, 1.5):
            self._slow_follower(context)
            self._slow_leader(context)

    def _slow_follower(self, context: FaultRunContext) -> None:
        # The broker that leads least: the partitions it leads are delayed or move, and do not count.
        led = {node: self.keys_led_by(context, [node]) for node in self.cluster.nodes}
        node = min(led, key=lambda one: len(led[one]))
        keys = [key for key in context.workload.partitions.keys if key not in led[node]]
        context.fault(f"syncs of node {node}, a follower of keys {keys}, take 0.5 s longer", keys)
        from_us = context.workload.recorder.now_us()
        self.shims[node].set(_DELAY_US_FOLLOWER)
        time.sleep(_SLOW_S)
        self.shims[node].set(0)
        quiet_from_us = from_us - int(_QUIET_S * 1e6)
        before = self._waits_ms(context, set(keys), quiet_from_us, from_us)
        waits = self._waits_ms(context, set(keys), from_us, context.workload.recorder.now_us())
        context.highest("slow_follower_produce_ms_p50", int(percentile(waits, 0.5)))
        context.highest("slow_follower_produce_ms_p99", int(percentile(waits, 0.99)))
        context.highest(_ADDED, added_ms(before, waits))
        context.count("slow_followers")
        self.cluster.wait_recovered()

    def _slow_leader(self, context: FaultRunContext) -> None:
        node = self.leader_of_some_key(context)
        keys = self.keys_led_by(context, [node])
        context.fault(f"syncs of node {node}, which leads keys {keys}, take 3 s longer", keys)
        began_at = time.monotonic()
        self.shims[node].set(_DELAY_US_LEADER)
        places = [context.workload.partitions.place(key) for key in keys]

        def has_stepped_down() -> bool:
            partitions = self.cluster.partitions()
            return all(partitions[place].leader not in (None, node) for place in places)

        self.cluster.wait_for(f"other leaders than the slow node {node}", has_stepped_down)
        context.highest_ms_since("slow_leader_gone_ms_max", began_at)
        self.wait_until_served(context, keys)
        self.shims[node].set(0)
        context.count("slow_leaders")
        self.cluster.wait_recovered()

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = super().complaints(context)
        added = int(context.notes.get(_ADDED, 0))
        if added > _ADDED_MS_MAX:
            found.append(f"a slow follower delayed the others: the median rose by {added} ms")
        return found

    def _waits_ms(
        self, context: FaultRunContext, keys: set[int], from_us: int, to_us: int
    ) -> list[float]:
        return [
            (one.completed_us - one.invoked_us) / 1000
            for one in context.workload.operations()
            if one.f is Function.SEND
            and one.outcome is OperationOutcome.OK
            and from_us <= one.invoked_us < to_us
            and one.sends[0].key in keys
        ]


def added_ms(before: Sequence[float], waits: Sequence[float]) -> int:
    """By how much the median grew. The whole slow period if nothing was acknowledged in it."""
    if not waits:
        return int(_SLOW_S * 1000)
    return max(0, int(percentile(waits, 0.5) - percentile(before, 0.5)))
