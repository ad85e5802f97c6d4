"""Runs that kill, pause and restart broker processes, alone and in a cluster."""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import closing, suppress
from functools import partial
from typing import Final

from kafkaesque.lab.faults.checks.figures import gaps_of_faults, percentile
from kafkaesque.lab.faults.checks.history import Function, Key, OperationOutcome
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.fault_run import FaultRun, FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.log_files import segment_paths
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.broker_admin import Place
from kafkaesque.lab.harness.cluster import BROKERS, TargetFailed
from kafkaesque.testing.waiting import poll_until

_PAUSE_S: Final = (0.3, 4.0)
_LEADER_PAUSE_S: Final = (3.0, 6.0)
"""At least twice the election timeout: another leader is elected before the old one resumes."""
_GOAL_MS_P50: Final = 600
_GOAL_MS_P99: Final = 1500
_GAP_MS_MAX: Final = 10_000
"""Apache Kafka's failover time with default settings, if no other broker notices the death."""
_STALLS_IN_A_GAP: Final = 10
"""A failover takes about this many steps of several processes. A busy machine may stall each of them as
long as it stalled this process."""
_GROUP_BACK_WITHIN_S: Final = 30.0
_NEVER_S: Final = 1e9
_REASSIGNMENT_KILL_SHARE: Final = 0.25


# -- one broker -----------------------------------------------------------------------------------


class KillBroker(FaultRun):
    purpose = "kill -9 and restart the broker, again and again"
    promise = "nothing acknowledged is lost, repeated or reordered"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.3, 2.0):
            context.fault("kill -9 node 0")
            context.target.kill(0)
            context.target.bring_up(0)
            context.count("kills")


class PauseBroker(FaultRun):
    purpose = "SIGSTOP the broker for up to 4 s, then SIGCONT"
    promise = "nothing acknowledged is lost, repeated or reordered"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 2.0):
            seconds = context.random.uniform(*_PAUSE_S)
            context.fault(f"pause node 0 for {seconds:.1f} s")
            context.target.pause(0)
            time.sleep(seconds)
            context.target.resume(0)
            context.count("pauses")


class RestartClean(FaultRun):
    purpose = "stop the broker with SIGTERM and start it again"
    promise = "clients notice a pause and nothing else; nothing needs recovery"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 2.0):
            context.fault("stop and start node 0")
            code = context.target.terminate(0)
            context.target.bring_up(0)
            context.count("restarts")
            if code != 0:
                context.count("unclean_exits")

    def complaints(self, context: FaultRunContext) -> list[str]:
        return _unclean_stops(context)


def _unclean_stops(context: FaultRunContext) -> list[str]:
    """Complaints about brokers that did not stop cleanly on SIGTERM."""
    found = []
    if context.notes.get("unclean_exits"):
        found.append(f"{context.notes['unclean_exits']} stop(s) ended with an exit code above 0")
    for node in context.target.nodes:
        if "not clean" in context.target.log_text(node):
            found.append(f"node {node} had to recover after a clean stop")
    return found


# -- a cluster ------------------------------------------------------------------------------------


class _KillOne(ClusterRun):
    """kill -9 one broker of a cluster, wait until the others serve, and start it again."""

    @abstractmethod
    def victim(self, context: FaultRunContext) -> int: ...

    @abstractmethod
    def fault_text(self, node: int, keys: Sequence[Key]) -> str: ...

    def while_down(self, context: FaultRunContext) -> None:
        """Called right after the kill."""

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.5):
            node = self.victim(context)
            keys = self.keys_led_by(context, [node])
            context.fault(self.fault_text(node, keys), keys)
            self.cluster.kill(node)
            context.count("kills")
            self.while_down(context)
            self.wait_until_served(context, keys)
            self.cluster.bring_up(node)
            self.cluster.wait_recovered()


class KillLeader(_KillOne):
    purpose = "kill -9 the broker that leads a partition, and start it again once others serve"
    promise = "another leads within a moment; nothing acknowledged is lost, repeated or reordered"
    rounds = 50

    def victim(self, context: FaultRunContext) -> int:
        return self.leader_of_some_key(context)

    def fault_text(self, node: int, keys: Sequence[Key]) -> str:
        return f"kill -9 node {node}, which leads keys {keys}"

    def complaints(self, context: FaultRunContext) -> list[str]:
        sending = [operation for operation in context.workload.operations() if operation.sends]
        gaps_ms = gaps_of_faults(sending, context.faults)
        context.notes["gap_goal"] = gap_goal(gaps_ms)
        own_stall_ms = int(context.notes.get("own_stall_ms_max", 0))
        return super().complaints(context) + check_gaps(gaps_ms, own_stall_ms)


def gap_goal(gaps_ms: Sequence[int]) -> str:
    """Whether the goal is met. Missing it is no failure: it depends on the machine as well."""
    is_met = percentile(gaps_ms, 0.5) < _GOAL_MS_P50 and percentile(gaps_ms, 0.99) < _GOAL_MS_P99
    wanted = f"p50 below {_GOAL_MS_P50} ms and p99 below {_GOAL_MS_P99} ms"
    return f"{'met' if is_met else 'MISSED'} ({wanted})"


def check_gaps(gaps_ms: Sequence[int], own_stall_ms: int) -> list[str]:
    """Complaints about gaps that a busy machine does not explain: no failover before some timeout."""
    allowed_ms = _GAP_MS_MAX + _STALLS_IN_A_GAP * own_stall_ms
    too_long = [gap_ms for gap_ms in gaps_ms if gap_ms > allowed_ms]
    if not too_long:
        return []
    return [
        f"{len(too_long)} of {len(gaps_ms)} kills were followed by more than {allowed_ms} ms "
        f"without service, the longest by {max(too_long)} ms"
    ]


class KillController(_KillOne):
    purpose = "kill -9 the controller, create a topic meanwhile, start it again"
    promise = "another one takes over; nothing acknowledged is lost, repeated or reordered"

    def victim(self, context: FaultRunContext) -> int:
        return self.cluster.wait_for_controller()

    def fault_text(self, node: int, keys: Sequence[Key]) -> str:
        return f"kill -9 node {node}, the controller"

    def while_down(self, context: FaultRunContext) -> None:
        killed_at = time.monotonic()
        context.workload.create_topic(f"during-{context.rounds_done}")
        context.highest_ms_since("create_topic_ms_max", killed_at)


class KillCoordinator(_KillOne):
    purpose = "kill -9 the coordinator of the consumer group, and start it again"
    promise = "the group resumes where it was; nothing acknowledged is lost, repeated or reordered"

    def victim(self, context: FaultRunContext) -> int:
        return self.cluster.wait_for_coordinator(context.workload.group_id)

    def fault_text(self, node: int, keys: Sequence[Key]) -> str:
        return f"kill -9 node {node}, the coordinator of the group"

    def while_down(self, context: FaultRunContext) -> None:
        """Wait until members have read and committed since the coordinator died.

        A commit that was in flight at its death may count once: two more prove a new coordinator.
        """
        killed_at = time.monotonic()
        before = context.workload.group_polls
        poll_until(
            lambda: context.workload.group_polls >= before + 3,
            "commits of the consumer group",
            _GROUP_BACK_WITHIN_S,
            error=TargetFailed,
        )
        context.highest_ms_since("group_back_ms_max", killed_at)


class KillAll(ClusterRun):
    purpose = "kill -9 all brokers at once, and start them together or one after the other"
    promise = "nothing acknowledged is lost, repeated or reordered, whichever starts first"

    def inject(self, context: FaultRunContext) -> None:
        nodes = list(self.cluster.nodes)
        while context.another_round(0.5, 2.0):
            context.random.shuffle(nodes)
            context.fault("kill -9 all nodes")
            self.cluster.kill(*nodes)
            context.count("kills", len(nodes))
            started_at = time.monotonic()
            if context.random.random() < 0.5:
                context.say(f"start nodes {nodes[0]} and {nodes[1]}, the last one later")
                self.cluster.bring_up(*nodes[:2])
            self.cluster.bring_up(*nodes)
            self.wait_until_served(context)
            context.highest_ms_since("served_after_start_ms_max", started_at)
            self.cluster.wait_recovered()


class PauseLeader(ClusterRun):
    purpose = "SIGSTOP a leader for longer than an election takes, then SIGCONT"
    promise = "it acknowledges and serves nothing stale; nothing is lost, repeated or reordered"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.5):
            node = self.leader_of_some_key(context)
            keys = self.keys_led_by(context, [node])
            seconds = context.random.uniform(*_LEADER_PAUSE_S)
            context.fault(f"pause node {node} for {seconds:.1f} s, which leads keys {keys}", keys)
            resumed_at = time.monotonic() + seconds
            self.cluster.pause(node)
            context.count("pauses")
            self.wait_until_served(context, keys)
            time.sleep(max(0.0, resumed_at - time.monotonic()))
            self.cluster.resume(node)
            self.cluster.wait_recovered()


class RollingRestart(ClusterRun):
    purpose = "stop and start every broker with SIGTERM, one after the other"
    promise = "no application sees an error; nothing needs recovery, nothing is lost or repeated"

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        # Clients must not die here: their records would have an unknown outcome without any broker's
        # fault. And a busy machine must not cost a reader its session: Kafka's default timeout.
        settings = super().workload(options)
        return dataclasses.replace(settings, crash_every_s=_NEVER_S, session_timeout_ms=45_000)

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.5, 1.0):
            for node in self.cluster.nodes:
                keys = self.keys_led_by(context, [node])
                context.fault(f"stop node {node}, which leads keys {keys}", keys)
                if self.cluster.terminate(node) != 0:
                    context.count("unclean_exits")
                self.wait_until_served(context, keys)
                self.cluster.bring_up(node)
                self.cluster.wait_recovered()
                context.count("restarts")

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = super().complaints(context)
        operations = context.workload.operations()
        for f, what in ((Function.SEND, "records"), (Function.POLL, "polls and commits")):
            errors = [
                one for one in operations if one.f is f and one.outcome is not OperationOutcome.OK
            ]
            context.notes[f"application_errors_{f}"] = len(errors)
            if errors:
                texts = ", ".join(sorted({one.error for one in errors if one.error})) or "no reason"
                found.append(
                    f"{len(errors)} {what} ended with an error that the application saw: {texts}"
                )
        return [*found, *_unclean_stops(context)]


class WipedReplica(ClusterRun):
    purpose = "kill -9 a broker, remove all its data, and start it again"
    promise = "it votes only when it has caught up; nothing acknowledged is lost or repeated"

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(1.0, 2.0):
            node = context.random.choice(self.cluster.nodes)
            keys = self.keys_led_by(context, [node])
            context.fault(f"kill -9 node {node} and wipe its disk", keys)
            self.cluster.wipe(node)
            context.count("wipes")
            self.wait_until_served(context, keys)
            started_at = time.monotonic()
            self.cluster.bring_up(node)
            self.cluster.wait_recovered()
            context.highest_ms_since("whole_again_ms_max", started_at)
            size_bytes = sum(path.stat().st_size for path in segment_paths(self.cluster.data(node)))
            context.highest("bytes_refetched_max", size_bytes)


class ReassignPartitions(ClusterRun):
    purpose = "move partitions between four brokers, sometimes killing one meanwhile"
    promise = "every move ends, and nothing acknowledged is lost, repeated or reordered"
    brokers = BROKERS + 1

    def inject(self, context: FaultRunContext) -> None:
        partitions = context.workload.partitions
        while context.another_round(0.2, 0.6):
            key = context.random.choice(partitions.keys)
            place = partitions.place(key)
            before = self.cluster.partitions()[place]
            target = context.random.sample(list(self.cluster.nodes), BROKERS)
            context.fault(f"move key {key} from {list(before.replicas)} to {target}", [key])
            began_at = time.monotonic()
            with closing(self.cluster.admin(self.cluster.awake[0], 15.0)) as admin:
                refusal = admin.reassign(place, target)
            if refusal is not None:
                context.count("refused")
                context.say(f"refused: {refusal}")
                continue
            context.count("moves")
            if context.random.random() < _REASSIGNMENT_KILL_SHARE:
                self._kill_one(context)
            self.cluster.wait_for(
                f"the end of the move of key {key} to {target}",
                partial(self._is_moved, place, set(target)),
            )
            context.highest_ms_since("move_ms_max", began_at)

    def _kill_one(self, context: FaultRunContext) -> None:
        node = context.random.choice(self.cluster.nodes)
        context.say(f"kill -9 node {node} during the move")
        self.cluster.kill(node)
        self.cluster.bring_up(node)
        context.count("kills")

    def _is_moved(self, place: Place, target: set[int]) -> bool:
        with closing(self.cluster.admin(self.cluster.awake[0])) as admin, suppress(OSError):
            if admin.reassigning() == 0:
                partition = self.cluster.partitions()[place]
                return set(partition.replicas) == set(partition.in_sync) == target
        return False
