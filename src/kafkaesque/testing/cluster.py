"""The brokers of one cluster inside this process, for tests that break and repair it.

    with Cluster(3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader_of("orders"))

This module starts, stops and breaks the brokers. `cluster_view.py` observes them, `node_thread.py` runs
one of them, `cluster_layout.py` has their ports and directories.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkaesque.testing import cluster_view, operations
from kafkaesque.testing.broker import PlainValue
from kafkaesque.testing.cluster_layout import WITHIN_S, Layout, cluster_settings
from kafkaesque.testing.cluster_view import ClusterReport, ObservedCluster
from kafkaesque.testing.node_thread import BrokerFailed, NodeThread

Brokers = int | Collection[int]


class Cluster(ObservedCluster):
    """`count` brokers with node ids 0, 1, ..., each in a thread of this process.

    settings: by Kafka's names, plain Python values, for every broker; they override the test settings.
    data: directory for the data, which is kept; default: a temporary one that `close` removes.

    Use it in a `with`, or call `start` and `close`. The ports stay the same in between.
    """

    def __init__(
        self,
        count: int = 3,
        *,
        settings: Mapping[str, PlainValue] | None = None,
        data: str | os.PathLike[str] | None = None,
    ) -> None:
        self.settings = cluster_settings(count, settings)
        self._count = count
        self._given_data = None if data is None else Path(data)
        self._layout: Layout | None = None
        self._threads: dict[int, NodeThread] = {}
        """The brokers that were started and not stopped."""
        self._cuts: set[tuple[int, int]] = set()
        """Pairs of brokers: nothing that the first sends reaches the second."""
        self._owner_pid = 0
        self._clean_up: weakref.finalize[..., Cluster] | None = None

    def __repr__(self) -> str:
        return f"<Cluster of {self._count}, up: {self.running}>"

    # -- life of the cluster ----------------------------------------------------------------------

    def start(self) -> Self:
        """Start all brokers; returns when every one serves and votes. BrokerFailed says why not."""
        if self._layout is not None:
            raise RuntimeError(f"{self!r} is already running")
        directory = self._given_data or Path(tempfile.mkdtemp(prefix="kafkaesque-"))
        self._layout = Layout(directory, self._count, self.settings)
        self._owner_pid = os.getpid()
        self._clean_up = weakref.finalize(
            self,
            _abandon,
            self._threads,
            self._layout,
            os.getpid(),
            is_temporary=self._given_data is None,
        )
        try:
            self.restart(*range(self._count))
            self.wait_until_joined()
        except BaseException:
            # Ctrl-C too: no broker outlives the error.
            self._shut_down()
            raise
        return self

    def close(self) -> None:
        """End every broker, and remove the data unless `data` was given.

        Brokers whose data is kept are stopped cleanly, others are killed. Does nothing if the cluster
        is not running. Raises BrokerFailed if a broker failed while it ran.
        """
        if self._layout is None or self._owner_pid != os.getpid():
            return
        try:
            self.check()
            if self._given_data is not None:
                self.stop(*self.running)
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        layout, self._layout = self._layout, None
        if self._clean_up is not None:
            self._clean_up.detach()
        self._cuts.clear()
        for number in self.running:
            with suppress(BrokerFailed):
                self._threads.pop(number).kill()
        if layout is not None:
            layout.close()
            if self._given_data is None:
                shutil.rmtree(layout.directory)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except BrokerFailed as failure:
            if error is None:
                raise
            error.add_note(str(failure))

    # -- life of a broker -------------------------------------------------------------------------

    def kill(self, *numbers: int) -> None:
        """Stop brokers as abruptly as a thread allows: nothing is handed over, finished, synced or sent
        any more. Brokers that do not run are ignored."""
        for number in self._checked(numbers):
            thread = self._threads.pop(number, None)
            if thread is not None:
                thread.kill()

    def stop(self, *numbers: int) -> None:
        """Stop brokers cleanly, one after the other. Brokers that do not run are ignored."""
        for number in self._checked(numbers):
            thread = self._threads.pop(number, None)
            if thread is not None:
                thread.stop()
                _check(number, thread)

    def restart(self, *numbers: int) -> None:
        """Start brokers, running ones after a clean stop, and wait until they serve.

        A broker serves only with a majority of the cluster: pass all that are needed at once.
        """
        layout = self._running_layout
        self.stop(*numbers)
        all_settings = {number: layout.settings(number) for number in numbers}
        for number, settings in all_settings.items():
            thread = NodeThread(operations.setting_texts(settings))
            self._threads[number] = thread
            thread.launch()
        for number in numbers:
            try:
                self._threads[number].wait_started()
            except BrokerFailed:
                del self._threads[number]
                raise
        self._apply_cuts(numbers)

    def wipe(self, number: int) -> None:
        """Kill a broker, if it runs, and remove its data. `restart` brings it back as a new one."""
        self.kill(number)
        self._running_layout.wipe(number)

    def pause(self, number: int) -> None:
        """Block a broker until `resume`: its connections stay open, and it answers nothing."""
        self._thread(number).pause()

    def resume(self, number: int) -> None:
        self._thread(number).resume()

    def mend(self) -> None:
        """Undo what was done to brokers and the network, and wait until all replicas are in sync."""
        self.heal()
        for thread in self._threads.values():
            thread.resume()
        self.restart(*set(range(self._count)) - set(self._threads))
        self.wait_until_joined()
        self.wait_until_in_sync()

    # -- the network between brokers --------------------------------------------------------------

    def partition(self, some: Brokers, others: Brokers, *, one_way: bool = False) -> None:
        """Drop all messages between two sets of brokers until `heal`; with `one_way` only those from
        `some` to `others`. Clients still reach all brokers."""
        for a in self._checked(_numbers(some)):
            for b in self._checked(_numbers(others)):
                if a != b:
                    self._cuts |= {(a, b)} if one_way else {(a, b), (b, a)}
        self._apply_cuts(self.running)

    def heal(self) -> None:
        """Reconnect all brokers."""
        healed = {number for cut in self._cuts for number in cut}
        self._cuts.clear()
        for number in healed & set(self._threads):
            self._thread(number).begin(partial(operations.heal, others=healed - {number}))

    def _apply_cuts(self, numbers: Iterable[int]) -> None:
        """Apply the cuts at both ends, so that they survive the restart of either broker."""
        for number in numbers:
            cuts = [
                operations.CutDirections(other, is_in=(other, number) in self._cuts, is_out=is_out)
                for other in self._running_layout.others(number)
                if (is_out := (number, other) in self._cuts) or (other, number) in self._cuts
            ]
            if cuts:
                self._thread(number).begin(partial(operations.cut, cuts=cuts))

    # -- facts ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, for the client setting of the same name."""
        return self._running_layout.bootstrap_servers

    def address(self, number: int) -> str:
        """HOST:PORT of one broker, whether it runs or not."""
        return self._running_layout.address(number)

    def data(self, number: int) -> Path:
        """The data directory of one broker."""
        return self._running_layout.data(number)

    @property
    def running(self) -> list[int]:
        """The brokers that were started and not stopped, including paused ones."""
        return sorted(self._threads)

    def check(self) -> None:
        """Raises BrokerFailed if a broker failed while it ran."""
        for number, thread in self._threads.items():
            _check(number, thread)

    @property
    def _running_layout(self) -> Layout:
        if self._layout is None:
            raise RuntimeError("the cluster is not running: use `with Cluster() as cluster:`")
        return self._layout

    def _checked(self, numbers: Sequence[int]) -> Sequence[int]:
        layout = self._running_layout
        for number in numbers:
            if not 0 <= number < layout.count:
                raise ValueError(f"no broker {number}: the brokers are 0..{layout.count - 1}")
        return numbers

    def _thread(self, number: int) -> NodeThread:
        (checked,) = self._checked((number,))
        thread = self._threads.get(checked)
        if thread is None:
            raise RuntimeError(f"broker {number} is not running: call restart({number})")
        return thread

    # -- operations for tests ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        **configs: PlainValue,
    ) -> None:
        """Create a topic and wait until every partition has a leader.

        `configs` are Kafka's topic settings with underscores for dots. Raises the error that a client
        would get (`model.errors`).
        """
        texts = operations.setting_texts(
            {name.replace("_", "."): value for name, value in configs.items()}
        )
        counts = tuple(-1 if count is None else count for count in (partitions, replication_factor))
        thread = next(thread for thread in self._threads.values() if not thread.is_paused)
        thread.call(lambda node: operations.create_cluster_topic(node, name, counts, texts))
        self.wait_until_led(name)

    def _view(self) -> ClusterReport:
        awake = {n: thread for n, thread in self._threads.items() if not thread.is_paused}
        begun = [thread.begin(cluster_view.query) for thread in awake.values()]
        return ClusterReport(
            {n: future.result(WITHIN_S) for n, future in zip(awake, begun, strict=True)}
        )


def _numbers(brokers: Brokers) -> Sequence[int]:
    return [brokers] if isinstance(brokers, int) else list(brokers)


def _check(number: int, thread: NodeThread) -> None:
    if thread.failure is not None:
        raise BrokerFailed(f"broker {number} failed while it ran: {thread.failure}") from (
            thread.failure
        )


def _abandon(
    threads: dict[int, NodeThread], layout: Layout, owner_pid: int, *, is_temporary: bool
) -> None:
    """Finalizer of a cluster that was not closed: when it is collected, or when Python exits."""
    if owner_pid == os.getpid():
        for thread in threads.values():
            thread.request_kill()
        for thread in threads.values():
            thread.abandon()
        layout.close()
        if is_temporary:
            shutil.rmtree(layout.directory, ignore_errors=True)
