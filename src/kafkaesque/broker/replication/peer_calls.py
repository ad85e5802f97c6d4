"""Requests between brokers over their link: those that we made and those that we serve.

Who is asked what is the business of whoever asks; here are numbers, futures, bounds and ends. No
task per call: a timer of the links looks at all deadlines, and a served call becomes a task only if
its handler is a coroutine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kafkaesque.broker.replication.rules.peer_codec import Answer, Call, Outcome
from kafkaesque.model.errors import InvariantBroken, KafkaError

logger = logging.getLogger("kafkaesque.links")


class PeerError(Exception):
    """A call did not bring an answer."""


class PeerUnreachable(PeerError):
    """There is no link: nothing was sent."""


class PeerBusy(PeerError):
    """Too much is under way to that broker, or there: it was not begun."""


class AnswerLost(PeerError):
    """The link went, or the time was over: whether it was carried out is not known."""


class CallFailed(PeerError):
    """The other broker tried and says why it could not."""


class OutstandingCalls:
    """Of one link, made by us."""

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
            raise PeerBusy(f"{self._count_max} calls are under way")
        self._last_number = (self._last_number + 1) & 0xFFFF_FFFF
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._calls[self._last_number] = (future, deadline)
        return self._last_number, future

    def forget(self, number: int) -> None:
        self._calls.pop(number, None)

    def answered(self, answer: Answer) -> None:
        """An answer that nobody waits for came too late."""
        future, _ = self._calls.pop(answer.number, (None, 0.0))
        if future is None or future.done():
            return
        if answer.outcome is Outcome.DONE:
            future.set_result(answer.body)
        elif answer.outcome is Outcome.BUSY:
            future.set_exception(PeerBusy("the other broker has too many calls under way"))
        else:
            future.set_exception(CallFailed(answer.body.decode(errors="replace")))

    def expire(self, now: float) -> None:
        """End those whose time is over; forget those whose caller has gone away."""
        over = [n for n, (future, deadline) in self._calls.items() if now >= deadline]
        for number in over:
            future, _ = self._calls.pop(number)
            if not future.done():
                future.set_exception(AnswerLost("no answer in time"))

    def fail(self) -> None:
        """The link is gone."""
        calls, self._calls = self._calls, {}
        for future, _ in calls.values():
            if not future.done():
                future.set_exception(AnswerLost("the link broke before the answer came"))


class CallServer:
    """Of one link: calls that the other broker made. `answer` sends one."""

    __slots__ = ("_answer", "_count", "_count_max", "_fail", "_tasks")

    def __init__(
        self,
        count_max: int,
        answer: Callable[[Answer], None],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._count_max = count_max
        self._answer = answer
        self._fail = fail
        self._count = 0
        self._tasks: set[asyncio.Future[bytes]] = set()
        """Made here, of coroutines: a handler's own future is its own to cancel."""

    def serve(self, call: Call, handle: Callable[[], bytes | Awaitable[bytes]]) -> None:
        if self._count >= self._count_max:
            self._answer(Answer(call.number, Outcome.BUSY, b""))
            return
        try:
            result = handle()
        except Exception as error:  # noqa: BLE001 - supervisor: the caller is told
            self._failed(call, error)
            return
        if isinstance(result, bytes):
            self._answer(Answer(call.number, Outcome.DONE, result))
            return
        future = asyncio.ensure_future(result)
        if future is not result:
            self._tasks.add(future)
        self._count += 1
        future.add_done_callback(partial(self._done, call))

    def cancel(self) -> None:
        """The link is gone: nobody will read the answers."""
        for task in self._tasks:
            task.cancel()

    def _done(self, call: Call, future: asyncio.Future[bytes]) -> None:
        self._count -= 1
        self._tasks.discard(future)
        if future.cancelled():
            self._answer(Answer(call.number, Outcome.FAILED, b"cancelled"))
            return
        error = future.exception()
        if error is not None:
            self._failed(call, error)
        else:
            self._answer(Answer(call.number, Outcome.DONE, future.result()))

    def _failed(self, call: Call, error: BaseException) -> None:
        if isinstance(error, KafkaError):
            # A refusal that callers reckon with, and retry: no trace for each.
            logger.debug("call of kind %d from a peer is refused: %s", call.kind, error)
        else:
            logger.warning("call of kind %d from a peer failed", call.kind, exc_info=error)
        text = f"{type(error).__name__}: {error}"
        self._answer(Answer(call.number, Outcome.FAILED, text.encode()))
        if isinstance(error, InvariantBroken):
            self._fail(error)
