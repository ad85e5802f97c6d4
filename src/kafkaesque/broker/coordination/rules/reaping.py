"""Which nodes may go by themselves: containers that were used and are empty, TTLs that ran out.

Rules of ContainerManager (3.9). The leader looks from time to time and proposes; applying looks
again (`machine.py`), since the node may have changed in between.
"""

from __future__ import annotations

from kafkaesque.broker.coordination.rules.commands import Reap
from kafkaesque.broker.coordination.rules.tree import Tree, ttl_of

REAPED_AT_ONCE_MAX = 1000
"""Found in one look, so that a great cleaning does not crowd out the clients' writes."""


def find_reapable(tree: Tree, now_ms: int) -> list[Reap]:
    found: list[Reap] = []
    for path, node in tree.reapable():
        if node.children:
            continue
        if node.is_container:
            is_due = node.child_creates > 0
        else:
            is_due = now_ms - node.mtime_ms > (ttl_of(node.owner) or 0)
        if is_due:
            found.append(Reap(path, node.czxid, node.mzxid))
            if len(found) == REAPED_AT_ONCE_MAX:
                break
    return found
