"""What is broken: a Target has nodes to kill, pause and restart. Here one broker process;
`cluster_target` has several."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kafkaesque.testing.broker_process import BrokerProcess

DEFAULT_SETTINGS: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # Several segments, so that closed ones are hit as well.
    "log.segment.bytes": 256 * 1024,
}


class TargetUnwell(Exception):
    """What was broken does not get well again by itself."""


class Target(Protocol):
    """Nodes by number. Every method returns when it is done."""

    @property
    def nodes(self) -> Sequence[int]: ...

    @property
    def bootstrap_servers(self) -> str: ...

    def kill(self, node: int) -> None:
        """kill -9."""

    def stop(self, node: int) -> int:
        """End it in order; the exit code."""

    def start(self, node: int) -> None:
        """Start it on its data, if it is not running, and wait until it serves."""

    def pause(self, node: int) -> None:
        """SIGSTOP."""

    def resume(self, node: int) -> None:
        """SIGCONT."""

    def data(self, node: int) -> Path: ...

    def log_text(self, node: int) -> str: ...

    def heal(self) -> None:
        """Every node runs again."""

    def close(self) -> None: ...


class SingleBroker:
    """A Target of one node, a process of its own."""

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._broker = BrokerProcess(
            directory, {**DEFAULT_SETTINGS, **(settings or {})}, environment=environment
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

    def stop(self, node: int) -> int:
        code = self._broker.stop()
        self._is_up = False
        return code

    def start(self, node: int) -> None:
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
        with contextlib.suppress(FileNotFoundError):
            return self._broker.log.read_text(errors="replace")
        return ""

    def heal(self) -> None:
        self.resume(0)
        self.start(0)

    def close(self) -> None:
        if self._is_paused:
            self.kill(0)
        self._broker.stop()
        self._is_up = False
