"""What a replica set is given if the test plays the other nodes, or there are none."""

from __future__ import annotations

from kafkaesque.model.ids import NodeId


class Nowhere:
    """The outbox of such a node. Its peers consider it alive until `lease_ends_s`."""

    lease_ends_s = 2.0**40

    def send(self, *_: object) -> None: ...

    def lease_until(self, node: NodeId) -> float:
        return self.lease_ends_s


def no_prefix(*_: object) -> None:
    raise AssertionError("nothing is compacted in this test")
