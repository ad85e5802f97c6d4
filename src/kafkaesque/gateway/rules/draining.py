"""How a draining gateway sends its clients away: in batches, each client after a delay of its own.

All at once would be a reconnect storm for the other gateways (after Phoenix's drainer and NATS's lame duck).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Wave(NamedTuple, Generic[T]):
    """Clients to send away, and the time to wait afterwards."""

    clients: Sequence[tuple[T, int]]
    """Each with the milliseconds after which it should leave."""
    wait_ms: int


def waves(
    clients: Sequence[T], batch: int, interval_ms: int, chance: Callable[[], float]
) -> Iterator[Wave[T]]:
    """Clients of a batch are spread over its interval by `chance`, which returns numbers from 0 to 1."""
    for start in range(0, len(clients), batch):
        together = clients[start : start + batch]
        spread = [(client, round(chance() * interval_ms)) for client in together]
        last = start + batch >= len(clients)
        yield Wave(spread, 0 if last else interval_ms)
