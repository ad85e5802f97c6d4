"""A real broker inside this process: for tests, notebooks and examples.

    with Broker(settings={"num.partitions": 4}) as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

This module has a test broker's settings, directory, ports and API. `node_thread.py` runs it on a
thread; `namespace.py` has the topics and records of one test.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kafkaesque.testing import operations
from kafkaesque.testing.node_thread import BrokerFailed, NodeThread

if TYPE_CHECKING:
    from kafkaesque.model.clock import Clock

PlainValue = bool | int | float | str | Sequence[str] | None
"""A setting as a plain Python value; None takes Kafka's default."""

DEVELOPMENT_SETTINGS: Mapping[str, PlainValue] = {
    "listeners": "127.0.0.1:0",
    "http.listener": "127.0.0.1:0",
    "auto.create.topics.enable": True,
    # Kafka waits 3 s for further members of a new group, which would slow down every test.
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    # The data of a test need not survive a power cut.
    "flush": "never",
}
"""Differences from the defaults of `kafkaesque broker`. `Broker(settings=...)` overrides them."""


class Broker:
    """A broker on a free port of 127.0.0.1, in a thread of this process.

    settings: by Kafka's names, plain Python values; added to DEVELOPMENT_SETTINGS.
    data: directory for the data, which is kept; default: a temporary one that `stop` removes.
    clock: a ManualClock, for tests of retention and expiry; default: the machine's clock.

    Use it in `with` or `async with`, or call `start` and `stop`. It can be started again after `stop`;
    `restart` keeps data and ports. A broker belongs to the process that started it: in a forked child
    `stop` does nothing.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, PlainValue] | None = None,
        data: str | os.PathLike[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = {**DEVELOPMENT_SETTINGS, **(settings or {})}
        self.clock = clock
        self._given_data = None if data is None else Path(data)
        self._data: Path | None = None
        self._thread: NodeThread | None = None
        self._bootstrap_servers = ""
        self._http_address: str | None = None
        self._owner_pid = 0
        self._lock = threading.Lock()
        self._clean_up: weakref.finalize[[NodeThread, Path | None, int], Broker] | None = None

    def __repr__(self) -> str:
        where = self._bootstrap_servers if self._thread is not None else "not running"
        return f"<Broker {where}>"

    # -- life cycle -----------------------------------------------------------------------------------

    def start(self) -> Self:
        """Return when clients can connect. BrokerFailed says why they cannot."""
        with self._lock:
            if self._thread is not None:
                raise RuntimeError(f"{self!r} is already running")
            self._data = self._given_data or Path(tempfile.mkdtemp(prefix="kafkaesque-"))
            try:
                self._run({})
            except BaseException:
                # Ctrl-C too: remove the directory whatever the error.
                self._remove_data()
                raise
        return self

    def stop(self) -> None:
        """Stop, and remove the data unless `data` was given. Does nothing if it is not running.

        Raises BrokerFailed if the broker failed while it ran.
        """
        with self._lock:
            if self._thread is None or self._owner_pid != os.getpid():
                return
            try:
                self._end_run()
            finally:
                self._remove_data()

    def restart(self) -> None:
        """Stop and start again, on the same data and the same ports."""
        with self._lock:
            self._running()
            addresses = {"listeners": self._bootstrap_servers}
            if self._http_address is not None:
                addresses["http.listener"] = self._http_address
            try:
                self._end_run()
                self._run(addresses)
            except BaseException:
                # As in `start`.
                self._remove_data()
                raise

    def _run(self, addresses: Mapping[str, str]) -> None:
        settings = {**self.settings, "log.dirs": str(self._data), **addresses}
        thread = NodeThread(operations.setting_texts(settings), self.clock)
        node = thread.start()
        self._thread = thread
        self._owner_pid = os.getpid()
        self._bootstrap_servers = str(node.kafka_address)
        self._http_address = str(node.http_address) if node.http_address else None
        temporary = None if self._given_data else self._data
        self._clean_up = weakref.finalize(self, _abandon, thread, temporary, self._owner_pid)

    def _end_run(self) -> None:
        thread = self._running()
        self._thread = None
        if self._clean_up is not None:
            self._clean_up.detach()
        thread.stop()
        if thread.failure is not None:
            raise BrokerFailed(f"the broker failed while it ran: {thread.failure}") from (
                thread.failure
            )

    def _remove_data(self) -> None:
        if self._data is not None and self._given_data is None:
            shutil.rmtree(self._data)
        self._data = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except BrokerFailed as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    async def __aenter__(self) -> Self:
        try:
            return await asyncio.to_thread(self.start)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # -- facts ----------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, for the client setting of the same name."""
        self._running()
        return self._bootstrap_servers

    @property
    def http_address(self) -> str | None:
        """HOST:PORT of /metrics, /healthz and /readyz; None if `http.listener` is empty."""
        self._running()
        return self._http_address

    @property
    def data(self) -> Path:
        """The data directory."""
        self._running()
        if self._data is None:
            raise RuntimeError(f"{self!r} has no data directory")
        return self._data

    def check(self) -> None:
        """Raises BrokerFailed if the broker failed while it ran."""
        failure = self._running().failure
        if failure is not None:
            raise BrokerFailed(f"the broker failed while it ran: {failure}") from failure

    def _running(self) -> NodeThread:
        if self._thread is None:
            raise RuntimeError(
                "the broker is not running: use `with Broker() as broker:` or call start()"
            )
        return self._thread

    # -- operations for tests --------------------------------------------------------------------

    def create_topic(self, name: str, partitions: int | None = None, **configs: PlainValue) -> None:
        """Create a topic; returns when it can be written. `partitions` defaults to `num.partitions` (1).

        `configs` are Kafka's topic settings with underscores for dots: `retention_ms=60_000`. Raises
        the error that a client would get (`model.errors`: TopicAlreadyExists, InvalidConfig, ...).
        """
        texts = operations.setting_texts(
            {name.replace("_", "."): value for name, value in configs.items()}
        )
        count = -1 if partitions is None else partitions
        self._running().call(lambda node: operations.create_topic(node, name, count, texts))

    def delete_topics(self, names: Sequence[str], *, wait: bool = True) -> None:
        """Delete those of `names` that exist."""
        deletion = self._running().begin(lambda node: operations.delete_topics(node, names))
        if wait:
            deletion.result()

    def run_maintenance(self) -> None:
        """Run the broker's periodic work now, by its clock.

        Retention, expiry of committed offsets and of idle producers, session timeouts of group members.
        """
        self._running().call(operations.maintain)


def _abandon(thread: NodeThread, temporary: Path | None, owner_pid: int) -> None:
    """Finalizer of a broker that was not stopped: when it is collected, or when Python exits."""
    if owner_pid == os.getpid():
        thread.abandon()
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
