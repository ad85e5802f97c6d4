"""Runs one node, from start to stop, on a thread and an event loop of its own.

This module is the boundary between the caller's thread and the node's. `broker.py` and `cluster.py`
have settings, directories and the API for tests. The broker's code is imported in the thread, so that
importing `kafkaesque.testing` stays cheap and does not block an event loop of the caller.
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
"""Longer than a node can take: five seconds to hand over leaderships, two for requests in flight, then
a sync of every log."""
ABANDON_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 30.0
_LOCK_NAME = "lock"
"""The lock file of `storage.directory`."""


class BrokerFailed(Exception):
    """The broker did not start, did not stop in time, or failed while it ran."""


class NodeThread:
    """One run of a node. Not reusable: created, started and ended once."""

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
        """The error that stopped the node after it had started; None while it runs."""

    # -- caller's thread: life cycle ----------------------------------------------------------------

    def start(self) -> Node:
        """Return when the node serves. BrokerFailed says in one line why it does not."""
        __tracebackhide__ = True  # pytest: the message is enough
        self.launch()
        return self.wait_started()

    def launch(self) -> None:
        """Begin to start without waiting: a broker may need others to run first."""
        self._thread.start()

    def wait_started(self) -> Node:
        __tracebackhide__ = True
        try:
            return self._started.result(START_TIMEOUT_S)
        except TimeoutError:
            self.request_stop()
            raise BrokerFailed(
                f"the broker did not start within {START_TIMEOUT_S:.0f} s; its thread is at:\n"
                f"{self._where()}"
            ) from None
        except Exception as error:
            # Any error of the node's thread is reported to the waiting test.
            self._thread.join(STOP_TIMEOUT_S)
            raise BrokerFailed(
                f"the broker did not start: {_explain(error, self._settings)}"
            ) from error
        except BaseException:
            # Ctrl-C while waiting: stop the node, too.
            self.request_stop()
            raise

    @property
    def has_started(self) -> bool:
        return self._started.done() and self._started.exception() is None

    def request_stop(self) -> None:
        """Ask the node to stop, or to abandon its start; does not wait."""
        self.resume()
        self._on_loop(self._stopping.set)

    def _on_loop(self, work: Callable[[], object]) -> None:
        """Schedule `work` on the node's loop as soon as it exists; ignored if the loop is closed."""

        def schedule(looping: Future[asyncio.AbstractEventLoop]) -> None:
            with contextlib.suppress(RuntimeError):
                looping.result().call_soon_threadsafe(work)

        self._looping.add_done_callback(schedule)

    def stop(self) -> None:
        """Return when the node has stopped and its thread has ended."""
        self.request_stop()
        self._join()

    def kill(self) -> None:
        """Stop as abruptly as a thread allows: see `Node.crash`."""
        self.request_kill()
        self._join()

    def request_kill(self) -> None:
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
        """Stop without raising, from a finalizer: in any thread, even the node's own."""
        self.request_stop()
        if self._thread is not threading.current_thread():
            self._thread.join(ABANDON_TIMEOUT_S)

    # -- caller's thread: work ----------------------------------------------------------------

    def pause(self) -> None:
        """Block the event loop until `resume`, like SIGSTOP; returns when it is blocked."""
        blocked = threading.Event()
        self._may_run.clear()
        self._on_loop(lambda: self._block(blocked))
        if not blocked.wait(CALL_TIMEOUT_S):
            self.resume()
            raise BrokerFailed(f"the broker did not pause; its thread is at:\n{self._where()}")

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
            raise BrokerFailed(f"the broker is not running any more: {self.failure or 'stopped'}")
        node, loop = self._started.result(0), self._looping.result(0)
        return asyncio.run_coroutine_threadsafe(work(node), loop)

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "(it has ended)"

    # -- node's thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            from kafkaesque.broker.node import Node
            from kafkaesque.model.settings import broker_config
            from kafkaesque.service.process import new_event_loop

            config = broker_config(self._settings)
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                self._looping.set_result(runner.get_loop())
                runner.run(self._serve(lambda: Node.start(config, self._clock)))
        except BaseException as error:  # noqa: BLE001 - the thread ends; the caller's gets the error
            # Only now, with the loop closed: nothing of the node is left when the error is seen.
            if self._started.done():
                self.failure = self.failure or error
            else:
                self._started.set_exception(error)

    async def _serve(self, start_node: Callable[[], Coroutine[Any, Any, Node]]) -> None:
        node = await self._start(start_node)
        node.failed.add_done_callback(self._failed)
        addresses = (node.kafka_address, node.http_address)
        ports = tuple(address.port for address in addresses if address is not None)
        forks.register_broker(ports, Path(node.config.log_dirs) / _LOCK_NAME)
        try:
            self._started.set_result(node)
            await self._stopping.wait()
            await (node.crash() if self._is_killed else node.stop())
        finally:
            forks.unregister_broker(ports)

    async def _start(self, start_node: Callable[[], Coroutine[Any, Any, Node]]) -> Node:
        """Start the node, which may wait long for its peers; a stop request ends the wait."""
        start = asyncio.ensure_future(start_node())
        stop = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not start.done():
            start.cancel()
            await asyncio.gather(start, return_exceptions=True)
            raise BrokerFailed("it was stopped before it had started")
        return start.result()

    def _block(self, blocked: threading.Event) -> None:
        blocked.set()
        self._may_run.wait()
        if self._is_killed:
            # Before any callback that became due meanwhile: a killed process runs none of them.
            self._cut_off()

    def _cut_off(self) -> None:
        if self.has_started and not self._stopping.is_set():
            self._started.result(0).cut_off()
        self._stopping.set()

    def _failed(self, failed: asyncio.Future[BaseException]) -> None:
        """As with a crashed process, clients lose their connections now; the test gets the error later."""
        self.failure = failed.result()
        self._stopping.set()


def _explain(error: Exception, settings: Mapping[str, str]) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        wanted = f"listeners={settings['listeners']}, http.listener={settings['http.listener']}"
        return f"an address is in use ({wanted}); port 0 takes a free one"
    return str(error) or type(error).__name__
