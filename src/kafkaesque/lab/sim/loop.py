"""The part of an event loop that partitions and coordinators use, on simulated time.

Futures, tasks, timers and threads: enough for code that awaits futures of this loop, `asyncio.sleep`,
`wait`, `shield` and `to_thread`; no sockets.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Protocol

from kafkaesque.lab.sim.schedule import SECOND_US, Action
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import KafkaError


class LoopHost(Protocol):
    """The process that the loop belongs to."""

    @property
    def clock(self) -> Clock: ...

    def later(self, delay_us: int, action: Action) -> None: ...

    def sync_latency_us(self) -> int: ...


class SimulatedFuture:
    """Behaves like an asyncio.Future, except that callbacks run at once."""

    _asyncio_future_blocking = False
    """The attribute by which asyncio recognizes a future."""

    def __init__(self, loop: SimulatedLoop | None = None) -> None:
        self._loop = loop
        self._is_done = False
        self._is_cancelled = False
        self._result: object = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[SimulatedFuture], None]] = []

    def done(self) -> bool:
        return self._is_done

    def cancelled(self) -> bool:
        return self._is_cancelled

    def get_loop(self) -> SimulatedLoop | None:
        return self._loop

    def set_result(self, result: object) -> None:
        self._settle(result, None)

    def set_exception(self, error: BaseException) -> None:
        self._settle(None, error)

    def result(self) -> object:
        if self._error is not None:
            raise self._error
        return self._result

    def exception(self) -> BaseException | None:
        return self._error

    def add_done_callback(self, callback: Callable[[SimulatedFuture], None]) -> None:
        if self._is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[SimulatedFuture], None]) -> None:
        if callback in self._callbacks:
            self._callbacks.remove(callback)

    def _settle(self, result: object, error: BaseException | None) -> None:
        self._is_done, self._result, self._error = True, result, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def __await__(self) -> Generator[SimulatedFuture, None, object]:
        if not self._is_done:
            yield self
        return self.result()


class SimulatedTask(SimulatedFuture):
    """The outcome of a coroutine, which ends when it is cancelled."""

    def __init__(self, loop: SimulatedLoop, work: Coroutine[Any, Any, Any]) -> None:
        super().__init__(loop)
        self.work = work
        self.ends_at_await = False
        """The task caused its own cancellation, so it runs until its next await."""

    def cancel(self) -> bool:
        if self._is_done:
            return False
        if inspect.getcoroutinestate(self.work) == inspect.CORO_RUNNING:
            self.ends_at_await = True
            return True
        self._is_cancelled = True
        self.work.close()
        self._settle(None, asyncio.CancelledError())
        return True


class Timer:
    """The handle that call_at returns."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class SimulatedLoop:
    """The loop of one process."""

    def __init__(self, process: LoopHost) -> None:
        self._process = process

    def create_future(self) -> SimulatedFuture:
        return SimulatedFuture(self)

    def create_task(self, work: Coroutine[Any, Any, Any]) -> SimulatedTask:
        """Starts the coroutine at once. A KafkaError that is never retrieved is not reported."""
        outcome = SimulatedTask(self, work)
        self._step(work, outcome)
        return outcome

    def time(self) -> float:
        return self._process.clock.monotonic()

    def call_at(self, when: float, action: Callable[..., object], *args: Any) -> Timer:
        return self.call_later(when - self.time(), action, *args)

    def call_later(self, delay: float, action: Callable[..., object], *args: Any) -> Timer:
        timer = Timer()

        def ring() -> None:
            if not timer.is_cancelled:
                action(*args)

        # At least a little later: the clock of the process may run slower than true time, and a timer
        # that fires early is set again.
        self._process.later(1 + max(0, int(delay * SECOND_US)), ring)
        return timer

    def run_in_executor(
        self, executor: object, function: Callable[..., Any], *args: Any
    ) -> SimulatedFuture:
        """Runs the function after a simulated disk latency, at the end of it."""
        outcome = SimulatedFuture()

        def perform() -> None:
            try:
                result = function(*args)
            except KafkaError as error:
                outcome.set_exception(error)
            else:
                outcome.set_result(result)

        self._process.later(self._process.sync_latency_us(), perform)
        return outcome

    def _step(self, work: Coroutine[Any, Any, Any], outcome: SimulatedTask) -> None:
        if outcome.done():
            return
        before = events._get_running_loop()
        events._set_running_loop(self)  # type: ignore[arg-type]
        try:
            awaited = work.send(None)
        except StopIteration as end:
            outcome.set_result(end.value)
            return
        except KafkaError as error:
            outcome.set_exception(error)
            return
        finally:
            events._set_running_loop(before)
        if not isinstance(awaited, SimulatedFuture):
            raise TypeError(f"a simulated task awaits {type(awaited).__name__}")
        if outcome.ends_at_await:
            outcome.cancel()
            return
        awaited.add_done_callback(lambda _: self._step(work, outcome))


def as_event_loop(loop: SimulatedLoop) -> asyncio.AbstractEventLoop:
    """Casts to the type that the product declares; it uses only what is implemented here."""
    return loop  # type: ignore[return-value]
