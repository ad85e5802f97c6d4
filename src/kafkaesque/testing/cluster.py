"""Several brokers of one cluster inside this process, to be broken and mended by a test.

    with Cluster(3) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader_of("orders"))

Lives here: which brokers run and what a test may do to them. What it may see of them lives in
`cluster_view.py`, the thread of one broker in `node_thread.py`, ports and directories in
`cluster_layout.py`.
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
from kafkaesque.testing.cluster_view import View, WatchedCluster
from kafkaesque.testing.node_thread import BrokerFailed, NodeThread

Brokers = int | Collection[int]


class Cluster(WatchedCluster):
    """`count` brokers with the node ids 0, 1, ..., each in a thread of this process.

    settings: Kafka's names, plain Python values, for every broker; they override those for tests.
    data: directory to keep the data in; without one, a temporary directory that `close` removes.

    As a context manager, or with `start` and `close`. The ports stay the same all the time.
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
        """Of the brokers that were started and not ended."""
        self._cuts: set[tuple[int, int]] = set()
        """Broker and broker: nothing that the first sends reaches the second."""
        self._owner_pid = 0
        self._clean_up: weakref.finalize[..., Cluster] | None = None

    def __repr__(self) -> str:
        return f"<Cluster of {self._count}, up: {self.running}>"

    # -- life of the cluster ----------------------------------------------------------------------

    def start(self) -> Self:
        """Return when every broker serves and votes. BrokerFailed says why one does not."""
        if self._layout is not None:
            raise RuntimeError(f"{self!r} runs already")
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
            # Ctrl-C too: no broker is left running behind the error that goes on.
            self._give_up()
            raise
        return self

    def close(self) -> None:
        """End every broker, and remove the data unless it was given a place. Again: does nothing.

        Brokers whose data is kept are stopped in order, others need no such care. BrokerFailed if
        a broker gave up by itself in the meantime.
        """
        if self._layout is None or self._owner_pid != os.getpid():
            return
        try:
            self.check()
            if self._given_data is not None:
                self.stop(*self.running)
        finally:
            self._give_up()

    def _give_up(self) -> None:
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
        """End brokers as hard as can be within a process: nothing is handed over, finished or
        synced, and nothing is sent any more. Again: does nothing."""
        for number in self._checked(numbers):
            thread = self._threads.pop(number, None)
            if thread is not None:
                thread.kill()

    def stop(self, *numbers: int) -> None:
        """Stop brokers in order, one after the other. Again: does nothing."""
        for number in self._checked(numbers):
            thread = self._threads.pop(number, None)
            if thread is not None:
                thread.stop()
                _check(number, thread)

    def restart(self, *numbers: int) -> None:
        """Have brokers run again, whatever became of them, and wait until they serve. Those that
        run are stopped in order before.

        Without a majority of its fellows no broker gets to serve: name them all at once.
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
        """Have a broker stand still until `resume`: its connections stay, nothing answers."""
        self._thread(number).pause()

    def resume(self, number: int) -> None:
        self._thread(number).resume()

    def mend(self) -> None:
        """Undo whatever was done to brokers, and wait until all are in sync: for the next test."""
        self.heal()
        for thread in self._threads.values():
            thread.resume()
        self.restart(*set(range(self._count)) - set(self._threads))
        self.wait_until_joined()
        self.wait_until_in_sync()

    # -- the network between brokers --------------------------------------------------------------

    def partition(self, some: Brokers, others: Brokers, *, one_way: bool = False) -> None:
        """Lose what brokers say to each other, until `heal`; with `one_way` only what `some` say
        to `others`. Clients still reach them all."""
        for a in self._checked(_numbers(some)):
            for b in self._checked(_numbers(others)):
                if a != b:
                    self._cuts |= {(a, b)} if one_way else {(a, b), (b, a)}
        self._apply_cuts(self.running)

    def heal(self) -> None:
        """Every broker hears every other again."""
        healed = {number for cut in self._cuts for number in cut}
        self._cuts.clear()
        for number in healed & set(self._threads):
            self._thread(number).begin(partial(operations.heal, others=healed - {number}))

    def _apply_cuts(self, numbers: Iterable[int]) -> None:
        """On both sides: a broker that is started again finds that the other remembers."""
        for number in numbers:
            cuts = [
                operations.Cut(other, is_in=(other, number) in self._cuts, is_out=is_out)
                for other in self._running_layout.others(number)
                if (is_out := (number, other) in self._cuts) or (other, number) in self._cuts
            ]
            if cuts:
                self._thread(number).begin(partial(operations.cut, cuts=cuts))

    # -- facts ------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """All addresses, for the setting of the same name of any client."""
        return self._running_layout.bootstrap_servers

    def address(self, number: int) -> str:
        """HOST:PORT of one broker, be it up or not."""
        return self._running_layout.address(number)

    def data(self, number: int) -> Path:
        """The data directory of one broker."""
        return self._running_layout.data(number)

    @property
    def running(self) -> list[int]:
        """The brokers that were started and not ended, paused ones too."""
        return sorted(self._threads)

    def check(self) -> None:
        """BrokerFailed if a broker gave up by itself."""
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
                raise ValueError(f"there is no broker {number} among 0..{layout.count - 1}")
        return numbers

    def _thread(self, number: int) -> NodeThread:
        (checked,) = self._checked((number,))
        thread = self._threads.get(checked)
        if thread is None:
            raise RuntimeError(f"broker {number} does not run: see `restart`")
        return thread

    # -- what a test may ask ----------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        *,
        replication_factor: int | None = None,
        **configs: PlainValue,
    ) -> None:
        """Create a topic and wait until every partition has a leader. `configs` are Kafka's, with
        underscores for dots. Raises as a client would be answered (`model.errors`)."""
        texts = operations.setting_texts(
            {name.replace("_", "."): value for name, value in configs.items()}
        )
        counts = tuple(-1 if count is None else count for count in (partitions, replication_factor))
        thread = next(thread for thread in self._threads.values() if not thread.is_paused)
        thread.call(lambda node: operations.have_topic(node, name, counts, texts))
        self.wait_until_led(name)

    def _view(self) -> View:
        awake = {n: thread for n, thread in self._threads.items() if not thread.is_paused}
        begun = [thread.begin(cluster_view.look) for thread in awake.values()]
        return View({n: future.result(WITHIN_S) for n, future in zip(awake, begun, strict=True)})


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
    """For a cluster that nobody closed: when it is collected, or when Python ends."""
    if owner_pid == os.getpid():
        for thread in threads.values():
            thread.ask_kill()
        for thread in threads.values():
            thread.abandon()
        layout.close()
        if is_temporary:
            shutil.rmtree(layout.directory, ignore_errors=True)
