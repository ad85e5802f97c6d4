"""Settings, ports and directories of the brokers of a test cluster.

Shared by brokers in threads (`cluster.py`) and brokers in processes (`cluster_processes.py`).
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from kafkaesque.testing.broker import DEVELOPMENT_SETTINGS, PlainValue
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

REPLICATION_FACTOR_MAX = 3
WITHIN_S = 30.0
"""Default timeout of the waiting helpers, well above what anything takes on an idle machine."""


class Layout:
    """Addresses, directories and settings of the brokers 0, 1, ... of one cluster.

    The ports stay reserved from the creation of this object until `close`.
    """

    def __init__(self, directory: Path, count: int, settings: Mapping[str, PlainValue]) -> None:
        self.directory = directory
        self.count = count
        self._settings = settings
        self._ports = ReservedPorts(count)

    def address(self, number: int) -> str:
        return f"{HOST}:{self._ports.numbers[number]}"

    def others(self, number: int) -> list[int]:
        return [other for other in range(self.count) if other != number]

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(map(self.address, range(self.count)))

    def data(self, number: int) -> Path:
        return self.directory / f"broker-{number}"

    def settings(self, number: int) -> dict[str, PlainValue]:
        """Settings of one broker. Broker 0 of a new cluster founds it; all others join it."""
        is_founding = number == 0 and not self.is_founded
        return {
            **self._settings,
            "node.id": number,
            "log.dirs": str(self.data(number)),
            "listeners": self.address(number),
            "join": None if is_founding else [self.address(other) for other in self.others(number)],
        }

    @property
    def is_founded(self) -> bool:
        """Whether any broker of this cluster has been started before."""
        return any(self.data(number).exists() for number in range(self.count))

    def wipe(self, number: int) -> None:
        shutil.rmtree(self.data(number), ignore_errors=True)

    def close(self) -> None:
        self._ports.close()


def cluster_settings(
    count: int, settings: Mapping[str, PlainValue] | None
) -> dict[str, PlainValue]:
    """The settings of a test broker, with a replication factor of `count`, but at most 3."""
    factor = min(REPLICATION_FACTOR_MAX, count)
    return {
        **DEVELOPMENT_SETTINGS,
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        # A leadership that moves back by itself minutes later would confuse a test.
        "auto.leader.rebalance.enable": False,
        **(settings or {}),
    }
