"""Which gateways serve a user best: those that already read the user's inbox partition.

Rendezvous hashing over the live gateways: all compute the same result without communication, and when one
leaves only its own partitions move. This is only a hint; any gateway serves any user.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

from kafkaesque.events.gateway import GatewayNode

TARGETS_MAX = 3


def targets_of(
    partition: int, gateways: Mapping[str, GatewayNode], *, without: Iterable[str] = ()
) -> tuple[str, ...]:
    """Addresses, best first, without draining gateways."""
    excluded = frozenset(without)
    ranked = sorted(
        (
            (_weight(name, partition), node.tcp)
            for name, node in gateways.items()
            if not node.draining and name not in excluded
        ),
        reverse=True,
    )
    return tuple(address for _, address in ranked[:TARGETS_MAX])


def _weight(name: str, partition: int) -> bytes:
    return hashlib.blake2b(f"{partition}/{name}".encode(), digest_size=8).digest()


def free_slot(gateways: Iterable[GatewayNode], wanted: int, count: int) -> int:
    """The slot (partition of gw.reply) for a new gateway: `wanted`, or the next free one. If two end up
    with the same slot, both read the other's replies too and ignore them."""
    taken = {node.slot for node in gateways}
    for step in range(count):
        slot = (wanted + step) % count
        if slot not in taken:
            return slot
    return wanted % count
