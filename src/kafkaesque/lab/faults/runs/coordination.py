"""Runs against the coordination service: brokers are killed, paused and cut off under its clients.

Links are cut where this machine permits network namespaces; clients reach every broker all the time.
Elsewhere the brokers are on loopback, no links are cut, and a note in the report states that.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Final

from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.election_clients import ElectionClients, HeldSpan, held_during, overlaps
from kafkaesque.lab.faults.fault_run import FaultRunContext, ShuffleBag
from kafkaesque.lab.faults.znode_clients import (
    EPHEMERALS,
    EXPIRING_SESSION_MS,
    REGISTERS,
    ROOT,
    ExpiringClient,
    RegisterClient,
    ZnodeHistory,
    now_us,
)
from kafkaesque.lab.faults.znode_connection import (
    ZnodeConnection,
    ZnodeConnectionLost,
    ZnodeSession,
)
from kafkaesque.lab.faults.znode_history import Ending, check_registers, check_watches
from kafkaesque.lab.harness import namespaces
from kafkaesque.lab.harness.cluster import BrokerCluster, BrokerSettings, Target, TargetFailed
from kafkaesque.lab.harness.namespaces import NamespaceNetwork
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.testing.waiting import poll_until

VARIABLE: Final = "KAFKAESQUE_COORDINATION_LISTENER"
_PORT: Final = 2181


class CoordinationRun(ClusterRun):
    """Base of these runs. `addresses` of the coordination service, by broker, from `open_target` on."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._network: NamespaceNetwork | None = None
        self._no_cuts_because: str | None = None

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        with contextlib.ExitStack() as held:
            self._no_cuts_because = namespaces.impossible()
            if self._no_cuts_because is not None:
                ports = held.enter_context(ReservedPorts(self.brokers))
                self.addresses = [f"{HOST}:{port}" for port in ports.numbers]
            yield held.enter_context(super().open_target(directory, settings))

    def new_cluster(self, directory: Path, settings: BrokerSettings) -> BrokerCluster:
        if self._no_cuts_because is None:
            network = self._network = NamespaceNetwork(self.brokers)
            hosts = [network.address(node).rpartition(":")[0] for node in range(self.brokers)]
            self.addresses = [f"{host}:{_PORT}" for host in hosts]
        return BrokerCluster(
            directory,
            # Plaintext is safe here: nothing else is connected to the bridge.
            {**settings, "insecure": True},
            count=self.brokers,
            network=self._network,
            environment=lambda node: {VARIABLE: self.addresses[node]},
        )

    @property
    def can_cut(self) -> bool:
        return self._network is not None

    def permitted(
        self, context: FaultRunContext, kinds: Iterable[str], cuts: Iterable[str]
    ) -> ShuffleBag:
        """The kinds of fault to draw from; where links cannot be cut, the report names what is missing."""
        permitted = [*kinds, *(cuts if self.can_cut else ())]
        context.notes |= {f"{kind}s": 0 for kind in permitted}
        if not self.can_cut:
            missing = f"{', '.join(cuts)}: {self._no_cuts_because}"
            context.notes["not_permitted"] = missing
            context.say(f"not permitted here: {missing}")
        return ShuffleBag(permitted, context.random)

    def cut_off(self, node: int) -> None:
        """Cut all links between one broker and the others, both ways."""
        if self._network is not None:
            for other in self.cluster.nodes:
                if other != node:
                    self._network.cut(node, other)
                    self._network.cut(other, node)


CLIENTS: Final = 4
_FAULT_S_MIN: Final = 2.0
_FAULT_S_MAX: Final = 4.0
_EXPIRES_WITHIN_S: Final = 20.0
"""A new leader restarts every session timeout, and a fault may delay the expiry for a while."""
_END_S: Final = 30.0
_WRITTEN_WITHIN_S: Final = 20.0


class CoordinationRegisters(CoordinationRun):
    purpose = "kill, stop and cut off brokers under clients of the coordination service"
    promise = "registers are linearizable, watches miss nothing, sessions and their nodes live on"
    rounds = 24

    def __init__(self) -> None:
        super().__init__()
        self._history = ZnodeHistory()
        self._workers: list[RegisterClient | ExpiringClient] = []
        self._faults_us: list[int] = []

    def begin(self, context: FaultRunContext) -> None:
        super().begin(context)
        self._make_registers()
        for number in range(CLIENTS):
            seed = context.random.randrange(1 << 30)
            self._workers.append(RegisterClient(self.addresses, self._history, seed, number))
        seed = context.random.randrange(1 << 30)
        self._workers.append(ExpiringClient(self.addresses, self._history, seed, _EXPIRES_WITHIN_S))
        for worker in self._workers:
            worker.start()

    def _make_registers(self) -> None:
        lost = ""

        def made() -> bool:
            nonlocal lost
            try:
                connection = ZnodeConnection(self.addresses[0], lambda _: None)
                connection.attach(ZnodeSession(), 10_000, 0)
                for path in (ROOT, EPHEMERALS, *REGISTERS):
                    connection.create(path)
                connection.close()
            except ZnodeConnectionLost as error:
                lost = str(error)
                return False
            return True

        poll_until(
            made,
            lambda: f"the registers are made ({lost})",
            _WRITTEN_WITHIN_S,
            poll_s=0.1,
            error=TargetFailed,
        )

    def inject(self, context: FaultRunContext) -> None:
        kinds = self.permitted(context, ("kill", "pause"), cuts=("cut",))
        while context.another_round(0.5, 1.0):
            kind = kinds.draw()
            node = context.random.choice(self.cluster.nodes)
            seconds = context.random.uniform(_FAULT_S_MIN, _FAULT_S_MAX)
            context.fault(f"{kind} node {node} for {seconds:.1f} s")
            context.count(f"{kind}s")
            self._faults_us.append(now_us())
            self._break(kind, node)
            time.sleep(seconds)
            self._wait_until_written()
            self.cluster.heal()
            self._wait_until_written()
        self._wait_until_a_session_ended()

    def _wait_until_a_session_ended(self) -> None:
        """After a round or two no session may have expired yet. If none ever does, `complaints`
        reports it."""
        with contextlib.suppress(TimeoutError):
            poll_until(
                lambda: bool(self._history.expired_after_ms),
                "a session expired",
                EXPIRING_SESSION_MS / 1000 + _EXPIRES_WITHIN_S,
                poll_s=0.1,
            )

    def _break(self, kind: str, node: int) -> None:
        if kind == "kill":
            self.cluster.kill(node)
        elif kind == "pause":
            self.cluster.pause(node)
        else:
            self.cut_off(node)

    def _wait_until_written(self) -> None:
        """Wait until every client has completed an operation that began after this call."""
        since = now_us()

        def unserved() -> set[int]:
            tail = self._history.operations[-1000:]
            done = {o.client for o in tail if o.begun_us > since and o.ending is Ending.DONE}
            return set(range(CLIENTS)) - done

        poll_until(
            lambda: not unserved(),
            lambda: f"answers to clients {sorted(unserved())}",
            _WRITTEN_WITHIN_S,
            poll_s=0.05,
            error=TargetFailed,
        )

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        for worker in self._workers:
            worker.end(_END_S)
        history = self._history
        found = [
            *history.complaints,
            *check_registers(history.operations),
            *check_watches(history.connections, history.transactions),
        ]
        if not history.expired_after_ms:
            found.append("no session expired in the whole run")
        self._note_figures(context)
        context.notes["coordination_violations"] = len(found)
        return [*found, *super().complaints(context)]

    def _note_figures(self, context: FaultRunContext) -> None:
        history = self._history
        done = [operation for operation in history.operations if operation.ending is Ending.DONE]
        events = sum(len(one.seen) for one in history.connections)
        context.notes |= {
            "operations": len(done),
            "operations_unknown": sum(o.ending is Ending.UNKNOWN for o in history.operations),
            "connections": len(history.connections),
            "events_and_replies": events,
            "transactions": len(history.transactions),
            "ephemerals_ended": len(history.expired_after_ms),
            "ephemeral_lived_ms_max": max(history.expired_after_ms, default=0),
        }
        gaps = self._write_gaps_ms(sorted(o.ended_us for o in done if o.is_write))
        if gaps:
            context.notes |= {"write_gap_ms_p50": int(median(gaps)), "write_gap_ms_max": max(gaps)}

    def _write_gaps_ms(self, written_us: list[int]) -> list[int]:
        """Per fault, the longest time in which no write of any client was acknowledged."""
        gaps = []
        ends = [*self._faults_us[1:], now_us()]
        for begun, ended in zip(self._faults_us, ends, strict=True):
            times = [begun, *(at for at in written_us if begun <= at < ended)]
            gaps.append(max((later - at) // 1000 for at, later in pairwise(times)))
        return gaps


SLOTS: Final = ("a", "b", "c")
SESSION_TIMEOUT_S: Final = 4.0
_LED_WITHIN_S: Final = 60.0
_RELEASED_WITHIN_S: Final = 30.0
_LONGER_THAN_A_SESSION_S: Final = SESSION_TIMEOUT_S + 1.0
"""Within this time a second leader would be elected if that were possible."""


class CoordinationRecipes(CoordinationRun):
    purpose = (
        "kill -9 an election's leader and its broker, cut the broker off, take the quorum away"
    )
    promise = (
        "a lock is never held twice, there are never two leaders, there is none without a quorum, "
        "and another client takes over"
    )
    rounds = 30

    def __init__(self) -> None:
        super().__init__()
        self._clients = ElectionClients("", SESSION_TIMEOUT_S)
        self._took_ms: list[float] = []
        self._without_quorum: list[HeldSpan] = []

    @contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        with (
            super().open_target(directory, settings) as target,
            closing(ElectionClients(",".join(self.addresses), SESSION_TIMEOUT_S)) as self._clients,
        ):
            yield target

    def begin(self, context: FaultRunContext) -> None:
        super().begin(context)
        for slot in SLOTS:
            self._clients.start(slot)
        self._clients.leader(_LED_WITHIN_S)

    def inject(self, context: FaultRunContext) -> None:
        kinds = self.permitted(context, ("kill", "blackout"), cuts=("cut",))
        while context.another_round(0.5, 1.5):
            slot, _ = self._clients.leader(_LED_WITHIN_S)
            address = self._clients.server_of(slot)
            node = self.addresses.index(address) if address in self.addresses else 0
            kind = kinds.draw()
            context.count(f"{kind}s")
            if kind == "kill":
                self._kill(context, slot, node)
            elif kind == "cut":
                self._cut(context, slot, node)
            else:
                self._remove_quorum(context, slot, node)

    def _kill(self, context: FaultRunContext, slot: str, node: int) -> None:
        context.fault(f"kill -9 {slot}, which leads, and node {node}, which serves it")
        self._clients.kill(slot)
        since_ns = max(span.ended_ns for span in self._clients.spans("lead"))
        self.cluster.kill(node)
        _, leads_ns = self._clients.leader(_LED_WITHIN_S)
        self._took_ms.append((leads_ns - since_ns) / 1e6)
        self._clients.start(slot)
        self.cluster.heal()

    def _cut(self, context: FaultRunContext, slot: str, node: int) -> None:
        """The other brokers are a majority; a client leads before the end of the cut or after it."""
        context.fault(f"cut off node {node}, which serves {slot}, which leads")
        self.cut_off(node)
        time.sleep(_LONGER_THAN_A_SESSION_S)
        self._clients.leader(_LED_WITHIN_S)
        self.cluster.heal()

    def _remove_quorum(self, context: FaultRunContext, slot: str, node: int) -> None:
        """No two brokers reach each other: no client may lead or learn that it leads."""
        if self.can_cut:
            context.fault(f"cut every link between brokers; {slot} leads, node {node} serves it")
            for one in self.cluster.nodes:
                self.cut_off(one)
        else:
            awake = context.random.choice(self.cluster.nodes)
            context.fault(f"stop all but node {awake}; {slot} leads, node {node} serves it")
            for one in self.cluster.nodes:
                if one != awake:
                    self.cluster.pause(one)
        begun_ns = time.monotonic_ns()
        self._clients.wait_until_disconnected(_RELEASED_WITHIN_S)
        released_ns = time.monotonic_ns()
        context.highest("let_go_ms_max", (released_ns - begun_ns) // 1_000_000)
        time.sleep(_LONGER_THAN_A_SESSION_S)
        self._without_quorum.append(HeldSpan("", released_ns, time.monotonic_ns()))
        self.cluster.heal()
        self._clients.leader(_LED_WITHIN_S)

    def complaints(self, context: FaultRunContext) -> list[str]:
        self._clients.close()
        found = super().complaints(context)
        for what in ("lead", "lock"):
            spans = self._clients.spans(what)
            wrong = [*overlaps(spans), *held_during(spans, self._without_quorum)]
            found += [f"{what}: {sentence}" for sentence in wrong]
            context.notes[f"{what}_turns"] = len(spans)
            if not spans:
                found.append(f"{what}: no client ever held it")
        if self._took_ms:
            context.notes["hand_over_ms_p50"] = round(percentile(self._took_ms, 0.5))
            context.notes["hand_over_ms_p99"] = round(percentile(self._took_ms, 0.99))
        return found
