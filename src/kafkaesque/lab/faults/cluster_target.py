"""A Target of several broker processes in one cluster, and what can be known of it from outside."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kafkaesque.lab.faults.cluster_sight import Asker, ClusterSeen, PartitionSeen, Place
from kafkaesque.lab.faults.target import DEFAULT_SETTINGS, TargetUnwell
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.reserved_ports import ReservedPorts

T = TypeVar("T")

BROKERS: Final = 3
WELL_WITHIN_S: Final = 45.0
"""How long a cluster may take to be whole again: far above what it takes on a machine at rest."""
_ASK_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05

CLUSTER_SETTINGS: Final[Mapping[str, object]] = {
    **DEFAULT_SETTINGS,
    "default.replication.factor": BROKERS,
    "offsets.topic.replication.factor": BROKERS,
    # A leadership that moves by itself in the middle of a fault would be counted as its doing.
    "auto.leader.rebalance.enable": False,
}


class Network(Protocol):
    """Where the brokers are."""

    def address(self, node: int) -> str: ...

    def inside(self, node: int) -> AbstractContextManager[None]:
        """What the calling thread starts meanwhile is on that node's side of the network."""

    def heal(self) -> None: ...

    def close(self) -> None: ...


class Loopback:
    """All brokers on 127.0.0.1; nothing can be cut."""

    def __init__(self, count: int) -> None:
        self._ports = ReservedPorts(count)

    def address(self, node: int) -> str:
        return f"127.0.0.1:{self._ports.numbers[node]}"

    def inside(self, node: int) -> AbstractContextManager[None]:
        return nullcontext()

    def heal(self) -> None:
        """There is nothing to heal."""

    def close(self) -> None:
        self._ports.close()


class ClusterTarget:
    """Brokers 0, 1, ... Methods beyond those of Target tell who does what, and wait."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        count: int = BROKERS,
        network: Network | None = None,
        environment: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        self.network = network or Loopback(count)
        self._settings = {**CLUSTER_SETTINGS, **(settings or {})}
        self._processes = [
            BrokerProcess(
                directory / f"broker-{node}",
                listen=self.network.address(node),
                environment=environment(node) if environment is not None else None,
            )
            for node in range(count)
        ]
        self._up: set[int] = set()
        self._paused: set[int] = set()
        self._is_founded = False

    # -- Target -----------------------------------------------------------------------------------

    @property
    def nodes(self) -> Sequence[int]:
        return range(len(self._processes))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.network.address(node) for node in self.nodes)

    def kill(self, *nodes: int) -> None:
        for node in nodes:
            if node in self._up:
                self._processes[node].signal(signal.SIGKILL)
        for node in nodes:
            self._processes[node].kill()
            self._gone(node)

    def stop(self, node: int) -> int:
        self.resume(node)
        code = self._processes[node].stop()
        self._gone(node)
        return code

    def start(self, *nodes: int) -> None:
        """Without a majority of its fellows no broker gets to serve: name them all at once."""
        new = [node for node in nodes if node not in self._up]
        for node in new:
            self._processes[node].settings = self._settings_of(node)
            with self.network.inside(node):
                self._processes[node].launch()
        self._is_founded = True
        for node in new:
            self._processes[node].wait_ready()
            self._up.add(node)

    def pause(self, node: int) -> None:
        self._processes[node].signal(signal.SIGSTOP)
        self._paused.add(node)

    def resume(self, node: int) -> None:
        if node in self._paused:
            self._processes[node].signal(signal.SIGCONT)
            self._paused.discard(node)

    def data(self, node: int) -> Path:
        return self._processes[node].data

    def log_text(self, node: int) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._processes[node].log.read_text(errors="replace")
        return ""

    def heal(self) -> None:
        self.network.heal()
        for node in tuple(self._paused):
            self.resume(node)
        self.start(*self.nodes)
        self.wait_whole()

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        self.network.close()

    def _gone(self, node: int) -> None:
        self._up.discard(node)
        self._paused.discard(node)

    def _settings_of(self, node: int) -> dict[str, object]:
        settings = {**self._settings, "node.id": node}
        if node > 0 or self._is_founded:
            others = [self.network.address(other) for other in self.nodes if other != node]
            settings["join"] = ",".join(others)
        return settings

    # -- more that can be done --------------------------------------------------------------------

    def wipe(self, node: int) -> None:
        """Remove the data of a broker that is down."""
        shutil.rmtree(self.data(node))

    # -- what is so -------------------------------------------------------------------------------

    @property
    def awake(self) -> list[int]:
        return sorted(self._up - self._paused)

    def asker(self, node: int, timeout_s: float = _ASK_TIMEOUT_S) -> Asker:
        return Asker(self.network.address(node), timeout_s)

    def look(self) -> dict[int, ClusterSeen]:
        """What every broker says that answers."""
        seen: dict[int, ClusterSeen] = {}
        for node in self.awake:
            with contextlib.closing(self.asker(node)) as asker, contextlib.suppress(OSError):
                seen[node] = asker.look()
        return seen

    def partitions(self) -> dict[Place, PartitionSeen]:
        """Of what two brokers see differently the later epoch holds, and the leader's own word."""
        newest: dict[Place, tuple[tuple[int, bool], PartitionSeen]] = {}
        for node, seen in self.look().items():
            for place, one in seen.partitions.items():
                rank = one.epoch, one.leader == node
                if place not in newest or rank > newest[place][0]:
                    newest[place] = rank, one
        return {place: one for place, (_, one) in newest.items()}

    def leader_of(self, place: Place) -> int:
        """The broker that leads it, as soon as there is one that is awake."""
        return self.wait_for(
            f"a leader of {place[0]}-{place[1]}",
            lambda: self._if_awake(self.partitions().get(place)),
        )

    def _if_awake(self, seen: PartitionSeen | None) -> int | None:
        return None if seen is None or seen.leader not in self.awake else seen.leader

    @property
    def controller(self) -> int:
        """Whom a majority of all brokers takes for the controller, as soon as there is one."""

        def look() -> int | None:
            named = Counter(seen.controller for seen in self.look().values())
            node, count = named.most_common(1)[0] if named else (None, 0)
            return node if node in self.awake and count > len(self.nodes) // 2 else None

        return self.wait_for("a controller", look)

    def coordinator(self, group_id: str) -> int:
        def look() -> int | None:
            for node in self.awake:
                with contextlib.closing(self.asker(node)) as asker, contextlib.suppress(OSError):
                    found = asker.coordinator(group_id)
                    if found in self.awake:
                        return found
            return None

        return self.wait_for(f"a coordinator of {group_id}", look)

    def wait_whole(self) -> None:
        """Until every broker knows all others and votes, and every replica is in sync."""
        self.wait_for("a cluster in which all brokers and replicas are there", self._is_whole)

    def _is_whole(self) -> bool | None:
        seen = self.look()
        everyone = set(self.nodes)
        if seen.keys() != everyone or any(one.brokers != everyone for one in seen.values()):
            return None
        whole = all(
            one.leader is not None and set(one.in_sync) == set(one.replicas)
            for one in self.partitions().values()
        )
        controllers = {one.controller for one in seen.values()}
        return (whole and len(controllers) == 1 and self._do_all_vote(controllers.pop())) or None

    def _do_all_vote(self, controller: int | None) -> bool:
        """A cluster whose controller's group is not complete yet may not lose anybody."""
        if controller not in self.awake:
            return False
        with contextlib.closing(self.asker(controller)) as asker, contextlib.suppress(OSError):
            return asker.controller_voters() == set(self.nodes)
        return False

    def wait_for(
        self, what: str, look: Callable[[], T | None], within_s: float = WELL_WITHIN_S
    ) -> T:
        """What `look` sees once it sees something; TargetUnwell if that takes too long."""
        deadline = time.monotonic() + within_s
        while (seen := look()) is None:
            if time.monotonic() > deadline:
                raise TargetUnwell(f"not within {within_s:g} s: {what}; seen: {self.look()}")
            time.sleep(_POLL_S)
        return seen
