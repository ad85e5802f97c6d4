"""What the two kinds of test cluster share: settings, ports and directories of their brokers.

Brokers in threads are in `cluster.py`, brokers in processes in `cluster_processes.py`.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kafkaesque.testing.broker import DEVELOPMENT_SETTINGS, PlainValue
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

T = TypeVar("T")

REPLICATION_FACTOR_MAX = 3
WITHIN_S = 30.0
"""How long the helpers wait: far above what anything takes on a machine that is not overloaded."""
POLL_S = 0.01


class Layout:
    """Where the brokers 0, 1, ... of one cluster are, from its start to its end."""

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
        """Of one broker. The first of all founds the cluster, any other joins by whoever is up."""
        is_founding = number == 0 and not any(
            self.data(other).exists() for other in range(self.count)
        )
        return {
            **self._settings,
            "node.id": number,
            "log.dirs": str(self.data(number)),
            "listeners": self.address(number),
            "join": None if is_founding else [self.address(other) for other in self.others(number)],
        }

    def wipe(self, number: int) -> None:
        shutil.rmtree(self.data(number), ignore_errors=True)

    def close(self) -> None:
        self._ports.close()


def cluster_settings(
    count: int, settings: Mapping[str, PlainValue] | None
) -> dict[str, PlainValue]:
    """Those of a broker for tests, and as many replicas as there are brokers, three at most."""
    factor = min(REPLICATION_FACTOR_MAX, count)
    return {
        **DEVELOPMENT_SETTINGS,
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        # Leadership that moves by itself, minutes after a test moved it, is a riddle.
        "auto.leader.rebalance.enable": False,
        **(settings or {}),
    }


def poll_until(look: Callable[[], T | None], what: Callable[[], str], within_s: float) -> T:
    """What `look` sees once it sees something; TimeoutError tells `what` was waited for."""
    deadline = time.monotonic() + within_s
    while (seen := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {within_s:g} s: {what()}")
        time.sleep(POLL_S)
    return seen
