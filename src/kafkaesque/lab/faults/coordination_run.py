"""Base of the runs against the coordination service: brokers that serve it, cut off where that can be.

Links between brokers are cut where this machine permits network namespaces; clients reach every broker
all the time. Where it does not, the brokers are on loopback and the report says so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkaesque.lab.faults import namespaces
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import ClusterTarget
from kafkaesque.lab.faults.deck import Deck
from kafkaesque.lab.faults.namespaces import NamespaceNetwork
from kafkaesque.lab.faults.stage import Stage
from kafkaesque.lab.faults.target import Target
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

VARIABLE: Final = "KAFKAESQUE_COORDINATION_LISTENER"
_PORT: Final = 2181


class CoordinationRun(ClusterRun):
    """`addresses` of the coordination service by broker, from `open_target` on."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self._network: NamespaceNetwork | None = None
        self._why_no_cuts: str | None = None

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        with contextlib.ExitStack() as held:
            self._why_no_cuts = namespaces.impossible()
            if self._why_no_cuts is not None:
                ports = held.enter_context(ReservedPorts(self.brokers))
                self.addresses = [f"{HOST}:{port}" for port in ports.numbers]
            yield held.enter_context(super().open_target(directory, settings))

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        if self._why_no_cuts is None:
            network = self._network = NamespaceNetwork(self.brokers)
            hosts = [network.address(node).rpartition(":")[0] for node in range(self.brokers)]
            self.addresses = [f"{host}:{_PORT}" for host in hosts]
        return ClusterTarget(
            directory,
            # Addresses of a bridge that nobody else is on.
            {**settings, "insecure": True},
            count=self.brokers,
            network=self._network,
            environment=lambda node: {VARIABLE: self.addresses[node]},
        )

    @property
    def can_cut(self) -> bool:
        return self._network is not None

    def permitted(self, stage: Stage, kinds: Iterable[str], cuts: Iterable[str]) -> Deck[str]:
        """All kinds of fault, or those without a cut and a word in the report about the others."""
        cards = [*kinds, *(cuts if self.can_cut else ())]
        stage.notes |= {f"{kind}s": 0 for kind in cards}
        if not self.can_cut:
            missing = f"{', '.join(cuts)}: {self._why_no_cuts}"
            stage.notes["not_permitted"] = missing
            stage.say(f"not permitted here: {missing}")
        return Deck(cards, stage.random)

    def cut_off(self, node: int) -> None:
        """It hears none of its fellows, and none of them hears it."""
        if self._network is not None:
            for other in self.cluster.nodes:
                if other != node:
                    self._network.cut(node, other)
                    self._network.cut(other, node)
