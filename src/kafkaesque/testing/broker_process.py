"""A broker as a child process, for tests that kill, pause and restart it.

with BrokerProcess(tmp_path) as broker:
    ... broker.bootstrap_servers ...
    broker.kill()          # kill -9
    broker.start()         # the same data, the same port
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkaesque.service.child_process import READY_SECONDS_MAX, ChildProcess, NotReady


class BrokerNotReady(Exception):
    """The process ended or did not become ready in time; the message has the end of its log."""


class BrokerProcess(ChildProcess):
    """`kafkaesque broker` on `directory`; `settings` by Kafka's names, `options` for its command line.

    It ends when this process ends, however that happens.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        environment: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        ready_seconds_max: float = READY_SECONDS_MAX,
    ) -> None:
        super().__init__(
            "the broker",
            (),
            directory / "broker.log",
            environment={**os.environ, **(environment or {})},
            ready_seconds_max=ready_seconds_max,
        )
        self.data = directory / "data"
        self.settings = dict(settings or {})
        self._listen = listen
        self._options = options

    def launch(self, *more: str) -> None:
        """Start, or start again on the same port, without waiting: a broker may need others to be up
        before it is ready."""
        address = self.facts.get("kafka", self._listen)
        self.command = [
            *(sys.executable, "-m", "kafkaesque.cli.main", "broker"),
            *("--data", str(self.data), "--listen", address, "--end-with-stdin"),
            *self._options,
        ]
        for name, value in self.settings.items():
            text = str(value).lower() if value in (True, False) else value
            self.command += ["--set", f"{name}={text}"]
        super().launch(*more)

    def wait_ready(self) -> Self:
        """Raises BrokerNotReady."""
        if self.was_launched:
            try:
                super().wait_ready()
            except NotReady as error:
                self.stop()
                raise BrokerNotReady(str(error)) from None
        return self

    @property
    def bootstrap_servers(self) -> str:
        return self.facts["kafka"]

    @property
    def http_address(self) -> str:
        return self.facts["http"]

    @property
    def pid(self) -> int:
        return int(self.facts["pid"])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
