"""Calls between brokers over their link: the client side and the server side.

This module has call numbers, futures, limits and deadlines; the callers define the kinds of calls
and their bodies. There is no task per call: one timer in `links` checks all deadlines, and a served
call becomes a task only if its handler is a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kafkaesque.broker.replication.rules.peer_codec import Outcome, PeerAnswer, PeerCall
from kafkaesque.model.errors import InvariantBroken, KafkaError

logger = logging.getLogger("kafkaesque.links")


class PeerError(Exception):
    """A call did not return an answer."""


class PeerUnreachable(PeerError):
    """There is no link. Nothing was sent."""


class PeerBusy(PeerError):
    """Too many calls are in flight, here or on the other broker. The call was not started."""


class AnswerLost(PeerError):
    """The link was lost or the call timed out. It may or may not have been carried out."""


class CallFailed(PeerError):
    """The other broker could not carry out the call. The message has its reason."""


class OutstandingCalls:
    """The calls that we made over one link."""

    __slots__ = ("_calls", "_count_max", "_last_number", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, count_max: int) -> None:
        self._loop = loop
        self._count_max = count_max
        self._last_number = 0
        self._calls: dict[int, tuple[asyncio.Future[bytes], float]] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def begin(self, deadline: float) -> tuple[int, asyncio.Future[bytes]]:
        if len(self._calls) >= self._count_max:
            raise PeerBusy(f"{self._count_max} calls are in flight")
        self._last_number = (self._last_number + 1) & 0xFFFF_FFFF
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[self._last_number] = (future, deadline)
        return self._last_number, future

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def answered(self, answer: PeerAnswer) -> None:
        """Completes a call. An answer that came too late is ignored."""
        future, _ = self._calls.pop(answer.number, (None, 0.0))
        if future is None or future.done():
            return
        if answer.outcome is Outcome.DONE:
            future.set_result(answer.body)
        elif answer.outcome is Outcome.BUSY:
            future.set_exception(PeerBusy("the other broker has too many calls in flight"))
        else:
            future.set_exception(CallFailed(answer.body.decode(errors="replace")))

    def expire(self, now: float) -> None:
        """Fails calls past their deadline, and forgets those whose callers are gone."""
        over = [n for n, (future, deadline) in self._calls.items() if now >= deadline]
        for number in over:
            future, _ = self._calls.pop(number)
            if not future.done():
                future.set_exception(AnswerLost("no answer in time"))

    def fail(self) -> None:
        """Fails all calls: the link is gone."""
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(AnswerLost("the link broke before the answer came"))


class CallServer:
    """Serves the calls that the other broker makes over one link. `answer` sends one answer."""

    __slots__ = ("_answer", "_count", "_count_max", "_fail", "_tasks")

    def __init__(
        self,
        count_max: int,
        answer: Callable[[PeerAnswer], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._count_max = count_max
        self._answer = answer
        self._fail = fail
        self._count = 0
        self._tasks: set[asyncio.Future[bytes]] = set()
        """Tasks created here from coroutines. A future that a handler returned is its own to
        cancel."""

    def serve(self, call: PeerCall, handle: Callable[[], bytes | Awaitable[bytes]]) -> None:
        if self._count >= self._count_max:
            self._answer(PeerAnswer(call.number, Outcome.BUSY, b""))
            return
        try:
            result = handle()
        except Exception as error:  # noqa: BLE001 - supervisor: the caller gets the error
            self._failed(call, error)
            return
        if isinstance(result, bytes):
            self._answer(PeerAnswer(call.number, Outcome.DONE, result))
            return
        future = asyncio.ensure_future(result)
        if future is not result:
            self._tasks.add(future)
        self._count += 1
        future.add_done_callback(partial(self._done, call))

    def cancel(self) -> None:
        """Cancels the tasks: the link is gone, so no answer can be sent."""
        for task in self._tasks:
            task.cancel()

    def _done(self, call: PeerCall, future: asyncio.Future[bytes]) -> None:
        self._count -= 1
        self._tasks.discard(future)
        if future.cancelled():
            self._answer(PeerAnswer(call.number, Outcome.FAILED, b"cancelled"))
            return
        error = future.exception()
        if error is not None:
            self._failed(call, error)
        else:
            self._answer(PeerAnswer(call.number, Outcome.DONE, future.result()))

    def _failed(self, call: PeerCall, error: BaseException) -> None:
        if isinstance(error, KafkaError):
            # Callers expect and retry these refusals: no traceback for each.
            logger.debug("rejected a peer's call: kind=%d error=%s", call.kind, error)
        else:
            logger.warning("a peer's call failed: kind=%d", call.kind, exc_info=error)
        text = f"{type(error).__name__}: {error}"
        self._answer(PeerAnswer(call.number, Outcome.FAILED, text.encode()))
        if isinstance(error, InvariantBroken):
            self._fail(error)
