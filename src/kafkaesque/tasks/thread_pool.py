"""A thread pool for plain functions, with a time limit that interrupts the thread."""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable
from typing import Any

from kafkaesque.tasks.errors import TimeLimitExceeded

_Job = tuple[
    Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]", "_ThreadExecution"
]
GRACE_SECONDS = 1.0
"""How long a function may take to end after it was interrupted."""


class _ThreadExecution:
    """One running function. The lock ensures that no other job of the thread is interrupted."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._thread_id: int | None = None
        self.started: asyncio.Future[None] = loop.create_future()
        """Waiting for a free thread does not count against the time limit."""

    def begin(self) -> None:
        with self._lock:
            self._thread_id = threading.get_ident()
        self._loop.call_soon_threadsafe(self._note_started)

    def _note_started(self) -> None:
        if not self.started.done():
            self.started.set_result(None)

    def end(self) -> None:
        with self._lock:
            self._thread_id = None

    def interrupt(self) -> None:
        """Raise TimeLimitExceeded in its thread, at its next line of Python."""
        with self._lock:
            if self._thread_id is not None:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread_id), ctypes.py_object(TimeLimitExceeded)
                )


class ThreadPool:
    """Daemon threads, started on demand, up to `count_max`.

    Unlike an executor of the standard library, a function that hangs in a C call does not keep the
    process from exiting.
    """

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._count = 0
        self._busy = 0
        self.abandoned = 0
        """Functions that did not end after their time limit."""

    async def run(self, function: Callable[[], Any], limit_s: float | None) -> Any:
        loop = asyncio.get_running_loop()
        context = contextvars.copy_context()
        done: asyncio.Future[Any] = loop.create_future()
        execution = _ThreadExecution(loop)
        self._busy += 1
        if self._busy > self._count and self._count < self._count_max:
            self._count += 1
            threading.Thread(target=self._work, name=f"task-{self._count}", daemon=True).start()
        self._jobs.put((lambda: context.run(function), loop, done, execution))
        try:
            return await self._wait(done, execution, limit_s)
        finally:
            self._busy -= 1

    async def _wait(
        self, done: asyncio.Future[Any], execution: _ThreadExecution, limit_s: float | None
    ) -> Any:
        if limit_s is None:
            return await done
        await asyncio.wait((done, execution.started), return_when=asyncio.FIRST_COMPLETED)
        finished, _ = await asyncio.wait((done,), timeout=limit_s)
        if not finished:
            execution.interrupt()
            finished, _ = await asyncio.wait((done,), timeout=GRACE_SECONDS)
            if not finished:
                # Its thread is lost while the function hangs; another may take its place.
                self.abandoned += 1
                self._count -= 1
                done.add_done_callback(_ignore)
                raise TimeLimitExceeded(f"ran longer than {limit_s:g} s and cannot be stopped")
        try:
            return done.result()
        except TimeLimitExceeded:
            raise TimeLimitExceeded(f"ran longer than {limit_s:g} s") from None

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, loop, done, execution = job
            value, failure = None, None
            try:
                execution.begin()
                try:
                    value = function()
                finally:
                    execution.end()
            except BaseException as error:  # noqa: BLE001 - supervisor: the waiting task gets it
                failure = error
            try:
                loop.call_soon_threadsafe(_settle, done, value, failure)
            except RuntimeError:
                return  # the loop is closed: nothing waits for the result

    def close(self) -> None:
        for _ in range(self._count):
            self._jobs.put(None)


def _settle(done: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    if done.done():
        return
    if failure is None:
        done.set_result(value)
    elif isinstance(failure, StopIteration):
        done.set_exception(RuntimeError("the task raised StopIteration"))
    else:
        done.set_exception(failure)


def _ignore(done: asyncio.Future[Any]) -> None:
    if not done.cancelled():
        done.exception()
