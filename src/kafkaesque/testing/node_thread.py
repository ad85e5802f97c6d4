"""One run of a node, from start to stop, on a thread and an event loop of its own.

Lives here: the border between the caller's thread and the node's. Settings, directories and what a
test may ask of a broker live in `broker.py` and `cluster.py`. The broker's code is imported in the
thread, so that the import of `kafkaesque.testing` stays cheap and an asynchronous caller is not held
up by it.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from kafkaesque.testing import forks

if TYPE_CHECKING:
    from kafkaesque.broker.node import Node
    from kafkaesque.model.clock import Clock

T = TypeVar("T")

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
"""Above what a node takes at worst: five seconds to hand over what it leads, two for requests under
way, then a sync of every log."""
ABANDON_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 30.0
_LOCK_NAME = "lock"
"""What `storage.directory` locks."""


class BrokerFailed(Exception):
    """The broker did not start, did not stop in time, or gave up while it ran."""


class NodeThread:
    """Made, started and ended once each."""

    def __init__(self, settings: Mapping[str, str], clock: Clock | None = None) -> None:
        self._settings = settings
        self._clock = clock
        self._looping: Future[asyncio.AbstractEventLoop] = Future()
        self._started: Future[Node] = Future()
        self._stopping = asyncio.Event()
        self._is_killed = False
        self._may_run = threading.Event()
        self._may_run.set()
        self._thread = threading.Thread(target=self._run, name="kafkaesque-broker", daemon=True)
        self.failure: BaseException | None = None
        """Why the node gave up after it had started; None while all is well."""

    # -- the caller's side: life ----------------------------------------------------------------

    def start(self) -> Node:
        """Return when the node serves. BrokerFailed says in one line why it does not."""
        __tracebackhide__ = True  # pytest: the message says it all
        self.launch()
        return self.wait_started()

    def launch(self) -> None:
        """Begin to start, without waiting: a broker may need others to be there first."""
        self._thread.start()

    def wait_started(self) -> Node:
        __tracebackhide__ = True
        try:
            return self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            self.ask_stop()
            raise BrokerFailed(
                f"the broker did not start within {START_TIMEOUT_S:.0f} s; its thread is at:\n"
                f"{self._where()}"
            ) from None
        except Exception as error:
            # Whatever the node's thread died of: it is explained to the test that waits for it.
            self._thread.join(STOP_TIMEOUT_S)
            raise BrokerFailed(
                f"the broker did not start: {_explain(error, self._settings)}"
            ) from error
        except BaseException:
            # Ctrl-C while waiting: the node is told, and the interrupt goes on.
            self.ask_stop()
            raise

    @property
    def has_started(self) -> bool:
        return self._started.done() and self._started.exception() is None

    def ask_stop(self) -> None:
        """Have the node stop, or give up its start; does not wait."""
        self.resume()
        self._on_loop(self._stopping.set)

    def _on_loop(self, work: Callable[[], object]) -> None:
        """Soon, and as soon as there is a loop. One that is closed belongs to a node that ended."""

        def hand_in(looping: Future[asyncio.AbstractEventLoop]) -> None:
            with contextlib.suppress(RuntimeError):
                looping.result().call_soon_threadsafe(work)

        self._looping.add_done_callback(hand_in)

    def stop(self) -> None:
        """Return when the node has stopped and its thread is gone."""
        self.ask_stop()
        self._join()

    def kill(self) -> None:
        """End it as hard as a thread can be ended: see `Node.crash`."""
        self.ask_kill()
        self._join()

    def ask_kill(self) -> None:
        self._is_killed = True
        self.resume()
        self._on_loop(self._cut_off)

    def _join(self) -> None:
        self._thread.join(STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise BrokerFailed(
                f"the broker did not stop within {STOP_TIMEOUT_S:.0f} s; its thread is at:\n"
                f"{self._where()}"
            )

    def abandon(self) -> None:
        """Stop without complaint, from a finalizer: in any thread, even in the node's own."""
        self.ask_stop()
        if self._thread is not threading.current_thread():
            self._thread.join(ABANDON_TIMEOUT_S)

    # -- the caller's side: work ----------------------------------------------------------------

    def pause(self) -> None:
        """Return when the event loop stands still: like a process that got SIGSTOP."""
        stands_still = threading.Event()
        self._may_run.clear()
        self._on_loop(lambda: self._stand_still(stands_still))
        if not stands_still.wait(CALL_TIMEOUT_S):
            self.resume()
            raise BrokerFailed(
                f"the broker does not stand still; its thread is at:\n{self._where()}"
            )

    def resume(self) -> None:
        self._may_run.set()

    @property
    def is_paused(self) -> bool:
        return not self._may_run.is_set()

    def call(self, work: Callable[[Node], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the node's event loop and wait for its result."""
        return self.begin(work).result(CALL_TIMEOUT_S)

    def begin(self, work: Callable[[Node], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run `work` on the node's event loop without waiting."""
        if not self.has_started or self.failure is not None or not self._thread.is_alive():
            raise BrokerFailed(f"the broker does not run any more: {self.failure or 'stopped'}")
        node, loop = self._started.result(0), self._looping.result(0)
        return asyncio.run_coroutine_threadsafe(work(node), loop)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "(it has ended)"

    # -- the node's side ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            from kafkaesque.broker.node import Node
            from kafkaesque.broker.server.event_loop import new_event_loop
            from kafkaesque.model.settings import broker_config

            node = Node(broker_config(self._settings), self._clock)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self._looping.set_result(runner.get_loop())
                runner.run(self._serve(node))
        except BaseException as error:  # noqa: BLE001 - the thread ends; the caller's gets the error
            # Only now, with the loop closed: whoever sees the error may rely on nothing being left.
            if self._started.done():
                self.failure = self.failure or error
            else:
                self._started.set_exception(error)

    async def _serve(self, node: Node) -> None:
        await self._start(node)
        node.failed.add_done_callback(self._failed)
        addresses = (node.kafka_address, node.http_address)
        ports = tuple(address.port for address in addresses if address is not None)
        forks.broker_runs(ports, Path(node.config.log_dirs) / _LOCK_NAME)
        try:
            self._started.set_result(node)
            await self._stopping.wait()
            await (node.crash() if self._is_killed else node.stop())
        finally:
            forks.broker_ended(ports)

    async def _start(self, node: Node) -> None:
        """A broker without its peers may wait long for them: it can be stopped meanwhile."""
        start = asyncio.ensure_future(node.start())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            raise BrokerFailed("it was stopped before it had started")
        start.result()

    def _stand_still(self, stands_still: threading.Event) -> None:
        stands_still.set()
        self._may_run.wait()
        if self._is_killed:
            # Before anything else that became due meanwhile: a killed process does none of it.
            self._cut_off()

    def _cut_off(self) -> None:
        if self.has_started and not self._stopping.is_set():
            self._started.result(0).cut_off()
        self._stopping.set()

    def _failed(self, failed: asyncio.Future[BaseException]) -> None:
        """Like a process that crashes: clients lose their connections now, the test is told later."""
        self.failure = failed.result()
        self._stopping.set()


def _explain(error: Exception, settings: Mapping[str, str]) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        wanted = f"listeners={settings['listeners']}, http.listener={settings['http.listener']}"
        return f"an address is in use ({wanted}); port 0 takes a free one"
    return str(error) or type(error).__name__
