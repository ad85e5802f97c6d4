"""One run of a node, from start to stop, on a thread and an event loop of its own.

Lives here: the border between the caller's thread and the node's. Settings, directories and what a
test may ask of a broker live in `broker.py`. The broker's code is imported in the thread, so that
the import of `kafkaesque.testing` stays cheap and an asynchronous caller is not held up by it.
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
"""Above what a node takes at worst: two seconds for requests under way, then a sync of every log."""
ABANDON_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 30.0
_LOCK_NAME = "lock"
"""What `storage.directory` locks."""


class BrokerFailed(Exception):
    """The broker did not start, did not stop in time, or gave up while it ran."""


class NodeThread:
    """Made, started and stopped once each."""

    def __init__(self, settings: Mapping[str, str], clock: Clock | None) -> None:
        self._settings = settings
        self._clock = clock
        self._started: Future[Node] = Future()
        self._stopping = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="kafkaesque-broker", daemon=True)
        self.failure: BaseException | None = None
        """Why the node gave up after it had started; None while all is well."""

    # -- the caller's side ----------------------------------------------------------------------

    def start(self) -> Node:
        """Return when the node serves. BrokerFailed says in one line why it does not."""
        __tracebackhide__ = True  # pytest: the message says it all
        self._thread.start()
        try:
            return self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            self.ask_stop()
            raise BrokerFailed(
                f"the broker did not start within {START_TIMEOUT_S:.0f} s; its thread is at:\n"
                f"{self._where()}"
            ) from None
        except Exception as error:
            self._thread.join(STOP_TIMEOUT_S)
            raise BrokerFailed(
                f"the broker did not start: {_explain(error, self._settings)}"
            ) from error
        except BaseException:
            self.ask_stop()
            raise

    def ask_stop(self) -> None:
        """Have the node stop, as soon as it has started; does not wait."""
        self._started.add_done_callback(lambda _: self._set_stopping())

    def _set_stopping(self) -> None:
        if self._loop is not None:
            # A loop that is closed already belongs to a node that has ended.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)

    def stop(self) -> None:
        """Return when the node has stopped and its thread is gone."""
        self.ask_stop()
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

    def call(self, work: Callable[[Node], Coroutine[Any, Any, T]]) -> T:
        """Run `work` on the node's event loop and wait for its result."""
        return self.begin(work).result(CALL_TIMEOUT_S)

    def begin(self, work: Callable[[Node], Coroutine[Any, Any, T]]) -> Future[T]:
        """Run `work` on the node's event loop without waiting."""
        if self._loop is None or self.failure is not None or not self._thread.is_alive():
            raise BrokerFailed(f"the broker does not run any more: {self.failure or 'stopped'}")
        return asyncio.run_coroutine_threadsafe(work(self._started.result(0)), self._loop)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "(it has ended)"

    # -- the node's side ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            from kafkaesque.broker.event_loop import new_event_loop
            from kafkaesque.broker.node import Node
            from kafkaesque.model.settings import broker_config

            node = Node(broker_config(self._settings), self._clock)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self._loop = runner.get_loop()
                runner.run(self._serve(node))
        except BaseException as error:  # noqa: BLE001 - the thread ends; the caller's gets the error
            # Only now, with the loop closed: whoever sees the error may rely on nothing being left.
            if self._started.done():
                self.failure = self.failure or error
            else:
                self._started.set_exception(error)

    async def _serve(self, node: Node) -> None:
        await node.start()
        node.failed.add_done_callback(self._failed)
        addresses = (node.kafka_address, node.http_address)
        ports = tuple(address.port for address in addresses if address is not None)
        forks.broker_runs(ports, Path(node.config.log_dirs) / _LOCK_NAME)
        try:
            self._started.set_result(node)
            await self._stopping.wait()
            await node.stop()
        finally:
            forks.broker_ended(ports)

    def _failed(self, failed: asyncio.Future[BaseException]) -> None:
        """Like a process that crashes: clients lose their connections now, the test is told later."""
        self.failure = failed.result()
        self._stopping.set()


def _explain(error: Exception, settings: Mapping[str, str]) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        wanted = f"listeners={settings['listeners']}, http.listener={settings['http.listener']}"
        return f"an address is in use ({wanted}); port 0 takes a free one"
    return str(error) or type(error).__name__
