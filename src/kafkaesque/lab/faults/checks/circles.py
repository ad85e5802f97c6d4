"""Circles in a directed graph: its strongly connected parts of more than one node. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def find_circles(edges: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Each circle as its ascending nodes (Tarjan 1972, with a stack of our own: histories are long)."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    circles: list[list[int]] = []
    for root in edges:
        if root in order:
            continue
        walk = [(root, iter(edges.get(root, ())))]
        order[root] = low[root] = len(order)
        open_nodes.append(root)
        is_open.add(root)
        while walk:
            node, following = walk[-1]
            for target in following:
                if target not in order:
                    order[target] = low[target] = len(order)
                    open_nodes.append(target)
                    is_open.add(target)
                    walk.append((target, iter(edges.get(target, ()))))
                    break
                if target in is_open:
                    low[node] = min(low[node], order[target])
            else:
                walk.pop()
                if walk:
                    parent = walk[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == order[node]:
                    part = _close(node, open_nodes, is_open)
                    if len(part) > 1:
                        circles.append(sorted(part))
    return circles


def _close(node: int, open_nodes: list[int], is_open: set[int]) -> list[int]:
    part = []
    while True:
        member = open_nodes.pop()
        is_open.discard(member)
        part.append(member)
        if member == node:
            return part
