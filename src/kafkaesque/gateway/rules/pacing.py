"""How a draining gateway sends its clients away: in batches, each client with a moment of its own.

All at once would make the other gateways' storm (after Phoenix's drainer and NATS's lame duck)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class Wave(NamedTuple):
    """Send these away, then wait."""

    clients: Sequence[tuple[object, int]]
    """Each with the milliseconds after which it goes."""
    wait_ms: int


def waves(
    clients: Sequence[object], batch: int, interval_ms: int, chance: Callable[[], float]
) -> Iterator[Wave]:
    """`chance` gives numbers from 0 to 1: clients of a batch spread over its interval."""
    for start in range(0, len(clients), batch):
        together = clients[start : start + batch]
        spread = [(client, round(chance() * interval_ms)) for client in together]
        last = start + batch >= len(clients)
        yield Wave(spread, 0 if last else interval_ms)
