"""Base of the runs whose brokers have a library of ours in front of libc, one lever or disk each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import ClusterTarget


class Device(Protocol):
    """What moves one broker's shim."""

    environment: dict[str, str]
    """In which the broker runs."""


D = TypeVar("D", bound=Device)


class ShimmedRun(ClusterRun, Generic[D]):
    """`devices` are there from `open_target` on, by node."""

    def __init__(self) -> None:
        super().__init__()
        self.devices: list[D] = []

    @abstractmethod
    def new_device(self, directory: Path, node: int) -> D:
        """For one broker; `directory` is the cluster's."""

    def impossible(self) -> str | None:
        return shims.impossible()

    def new_target(self, directory: Path, settings: Mapping[str, object]) -> ClusterTarget:
        self.devices = [self.new_device(directory, node) for node in range(self.brokers)]
        return ClusterTarget(
            directory,
            settings,
            count=self.brokers,
            environment=lambda node: self.devices[node].environment,
        )
