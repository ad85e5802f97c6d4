"""Handlers: one API each, with the versions it serves and a function from request to response."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Request)


class Forwarded(NamedTuple):
    """The controller's answer, with length and header, as it is sent to the client."""

    frame: bytes


Answer = Response | None
"""None if the protocol has no answer: a Produce with acks=0."""

Later = Coroutine[Any, Any, Answer | Forwarded] | asyncio.Future[Answer]
"""An answer that comes later. A future is cheaper if something else will resolve it."""

Handle = Callable[[Context, R, Call], Answer | Later]


@dataclass(frozen=True, slots=True)
class Handler(Generic[R]):
    """One API. `versions` are served; those from `advertised_from` on are advertised to clients.

    `overlaps`: requests of this API may begin while an earlier one of the same connection and API
    still waits. All others run strictly one after the other, as in Kafka.

    `at_controller`: only the leader of the controller's group can answer. Other brokers forward the
    request to it.
    """

    request: type[R]
    versions: tuple[int, int]
    handle: Handle[R]
    advertised_from: int
    overlaps: bool
    at_controller: bool = False

    @property
    def key(self) -> int:
        return self.request.API_KEY


def handler(
    request: type[R],
    versions: tuple[int, int],
    *,
    advertised_from: int | None = None,
    overlaps: bool = False,
    at_controller: bool = False,
) -> Callable[[Handle[R]], Handler[R]]:
    """Makes a function the handler of `request`. Its module names it HANDLER."""

    def as_handler(handle: Handle[R]) -> Handler[R]:
        lowest = versions[0] if advertised_from is None else advertised_from
        return Handler(request, versions, handle, lowest, overlaps, at_controller)

    return as_handler
