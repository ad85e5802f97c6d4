"""Brokers under test that can be killed, paused, wiped and cut off: one process, or a cluster.

`Target` is what a fault run breaks. `SingleBroker` is one broker process; `BrokerCluster` is a cluster
of them on a `BrokerNetwork` whose links may be cut.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kafkaesque.lab.harness.broker_admin import BrokerAdmin, Place
from kafkaesque.testing.broker import PlainValue
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.cluster_layout import Layout
from kafkaesque.testing.cluster_processes import BrokerProcesses
from kafkaesque.testing.cluster_view import PartitionReport
from kafkaesque.testing.waiting import poll_until

T = TypeVar("T")

BrokerSettings = Mapping[str, PlainValue]
"""Settings of a broker by Kafka's names."""
BROKERS: Final = 3
RECOVERY_TIMEOUT_S: Final = 45.0
"""How long a cluster may take to recover: far above what it takes on an idle machine."""
_QUERY_TIMEOUT_S: Final = 2.0
_POLL_S: Final = 0.05

BROKER_SETTINGS: Final[BrokerSettings] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # Several segments, so that faults hit closed ones as well.
    "log.segment.bytes": 256 * 1024,
}
CLUSTER_SETTINGS: Final[BrokerSettings] = {
    **BROKER_SETTINGS,
    "default.replication.factor": BROKERS,
    "offsets.topic.replication.factor": BROKERS,
    # A leadership that moves by itself during a fault would be attributed to the fault.
    "auto.leader.rebalance.enable": False,
}


class TargetFailed(Exception):
    """The system under test did not start or did not recover in time."""


class Target(Protocol):
    """Brokers by node number. Every method returns when it is done."""

    @property
    def nodes(self) -> Sequence[int]: ...

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self, node: int) -> None:
        """kill -9."""

    def terminate(self, node: int) -> int:
        """SIGTERM; returns the exit code."""

    def bring_up(self, node: int) -> None:
        """Start a broker on its data, unless it is running, and wait until it serves."""

    def pause(self, node: int) -> None:
        """SIGSTOP."""

    def resume(self, node: int) -> None:
        """SIGCONT."""

    def data(self, node: int) -> Path: ...

    def log_text(self, node: int) -> str: ...

    def heal(self) -> None:
        """Undo every fault and wait until all brokers serve."""

    def close(self) -> None: ...


class SingleBroker:
    """A Target of one broker process."""

    def __init__(
        self,
        directory: Path,
        settings: BrokerSettings | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._broker = BrokerProcess(
            directory, {**BROKER_SETTINGS, **(settings or {})}, environment=environment
        )
        self._is_up = False
        self._is_paused = False

    @property
    def nodes(self) -> Sequence[int]:
        return (0,)

    @property
    def bootstrap_servers(self) -> str:
        return self._broker.bootstrap_servers

    def kill(self, node: int) -> None:
        self._broker.kill()
        self._is_up = self._is_paused = False

    def terminate(self, node: int) -> int:
        code = self._broker.stop()
        self._is_up = False
        return code

    def bring_up(self, node: int) -> None:
        if not self._is_up:
            self._broker.start()
            self._is_up = True

    def pause(self, node: int) -> None:
        self._broker.signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self, node: int) -> None:
        if self._is_paused:
            self._broker.signal(signal.SIGCONT)
            self._is_paused = False

    def data(self, node: int) -> Path:
        return self._broker.data

    def log_text(self, node: int) -> str:
        return _log_text(self._broker)

    def heal(self) -> None:
        self.resume(0)
        self.bring_up(0)

    def close(self) -> None:
        if self._is_paused:
            self.kill(0)
        self._broker.stop()
        self._is_up = False


class BrokerNetwork(Protocol):
    """The network between the brokers of a cluster."""

    def address(self, node: int) -> str: ...

    def inside(self, node: int) -> AbstractContextManager[None]:
        """Within the `with`, processes that the calling thread starts are attached at that node."""

    def heal(self) -> None:
        """Restore every link that was cut."""

    def close(self) -> None: ...


class _NewLayout(Layout):
    """The layout of a cluster that does not exist yet, on `network` or else on loopback."""

    def __init__(
        self,
        directory: Path,
        count: int,
        settings: BrokerSettings,
        network: BrokerNetwork | None,
    ) -> None:
        super().__init__(directory, count, settings)
        self.network = network
        self.was_launched = False

    def address(self, number: int) -> str:
        return super().address(number) if self.network is None else self.network.address(number)

    @property
    def is_founded(self) -> bool:
        # The existence of a directory proves nothing: a run may mount disks there before the first start.
        return self.was_launched

    def close(self) -> None:
        super().close()
        if self.network is not None:
            self.network.close()


class BrokerCluster(BrokerProcesses):
    """A Target of `count` broker processes in one cluster."""

    def __init__(
        self,
        directory: Path,
        settings: BrokerSettings | None = None,
        *,
        count: int = BROKERS,
        network: BrokerNetwork | None = None,
        environment: Callable[[int], Mapping[str, str]] | None = None,
    ) -> None:
        all_settings = {**CLUSTER_SETTINGS, **(settings or {})}
        self._new = _NewLayout(directory, count, all_settings, network)
        super().__init__(self._new, environment)

    def _network_of(self, number: int) -> AbstractContextManager[None]:
        network = self._new.network
        return nullcontext() if network is None else network.inside(number)

    # -- Target -----------------------------------------------------------------------------------

    @property
    def nodes(self) -> Sequence[int]:
        return range(self._layout.count)

    def launch(self, *numbers: int) -> None:
        super().launch(*numbers)
        self._new.was_launched = True

    def bring_up(self, *nodes: int) -> None:
        """A broker serves only with a majority of the cluster: pass all that are needed at once."""
        down = [node for node in nodes if node not in self.running]
        self.launch(*down)
        self.wait_ready(*down)

    def data(self, node: int) -> Path:
        return self.process(node).data

    def log_text(self, node: int) -> str:
        return _log_text(self.process(node))

    def heal(self) -> None:
        if self._new.network is not None:
            self._new.network.heal()
        for node in self.nodes:
            self.resume(node)
        self.bring_up(*self.nodes)
        self.wait_recovered()

    # -- observing --------------------------------------------------------------------------------

    def admin(self, node: int, timeout_s: float = _QUERY_TIMEOUT_S) -> BrokerAdmin:
        return BrokerAdmin(self.address(node), timeout_s)

    def partitions(self) -> dict[Place, PartitionReport]:
        """Every partition, as the broker with the newest leader epoch reports it."""
        return self._view().partitions()

    def wait_for_leader(self, place: Place) -> int:
        """The leader of a partition, once it is a broker that is awake."""
        topic, index = place
        return self.wait_for(
            f"a leader of {topic}-{index}",
            lambda: self._if_awake(self._view().leader_of(topic, index)),
        )

    def wait_for_controller(self) -> int:
        """The controller, once a majority of all brokers names one that is awake."""

        def look() -> int | None:
            view = self._view()
            named = [one.controller for one in view.views.values()]
            is_majority = named.count(view.controller) > len(self.nodes) // 2
            return self._if_awake(view.controller) if is_majority else None

        return self.wait_for("a controller", look)

    def wait_for_coordinator(self, group_id: str) -> int:
        """The coordinator of a consumer group, once it is a broker that is awake."""

        def look() -> int | None:
            for node in self.awake:
                with contextlib.closing(self.admin(node)) as admin, contextlib.suppress(OSError):
                    found = self._if_awake(admin.coordinator(group_id))
                    if found is not None:
                        return found
            return None

        return self.wait_for(f"a coordinator of {group_id}", look)

    def _if_awake(self, node: int | None) -> int | None:
        return node if node in self.awake else None

    def wait_recovered(self) -> None:
        """Wait until all brokers are connected and vote, and every replica is in sync."""
        self.wait_for("all brokers and replicas in sync", self._is_recovered)

    def _is_recovered(self) -> bool:
        """A cluster whose controller quorum is not complete yet must not lose another broker."""
        view = self._view()
        controllers = {one.controller for one in view.views.values()}
        return (
            view.views.keys() == set(self.nodes)
            and len(controllers) == 1
            and view.is_joined
            and view.is_in_sync(None)
        )

    def wait_for(
        self, what: str, look: Callable[[], T | None], within_s: float = RECOVERY_TIMEOUT_S
    ) -> T:
        """Poll until `look` returns something; TargetFailed if that takes too long."""
        return poll_until(
            look,
            lambda: f"{what}; the brokers report:\n{self._view()}",
            within_s,
            poll_s=_POLL_S,
            error=TargetFailed,
        )


def _log_text(process: BrokerProcess) -> str:
    with contextlib.suppress(FileNotFoundError):
        return process.log.read_text(errors="replace")
    return ""
