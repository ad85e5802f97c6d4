"""Damage is found and repaired from a peer; a batch that is deleted meanwhile is not damage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.broker.replication.replica_rig import MEMBERS, RigNode, Trio

from kafkaesque.broker.cluster.scrubber import Scrubber
from kafkaesque.model.ids import NodeId

HERE = 2


class Scene:
    """Three nodes with the same five batches; the last node has one of them wrong on its disk."""

    def __init__(self, directory: Path) -> None:
        self.trio = Trio(directory)
        self.trio.elect(0)
        self.trio.append(5)
        self.trio.tick(5)
        self.meanwhile: Callable[[], None] = lambda: None
        """What happens on the node while it waits for a peer's answer."""
        peers = [Scrubber(node.replicas, self._ask) for node in self.trio.nodes]
        self.scrubber, self._peers = peers[HERE], peers
        self._path = directory / str(HERE) / "log" / f"{0:020d}.log"

    @property
    def node(self) -> RigNode:
        return self.trio.nodes[HERE]

    async def _ask(self, node: NodeId, body: bytes) -> bytes:
        answer = self._peers[node].serve(body)
        self.meanwhile()
        return answer

    def flip(self, position: int) -> None:
        data = bytearray(self._path.read_bytes())
        data[position] ^= 0x20
        self._path.write_bytes(data)

    def scrub(self) -> None:
        async def two_rounds() -> None:
            for _ in range(4):
                await self.scrubber.step()

        asyncio.run(two_rounds())

    def remove(self) -> None:
        self.node.replicas.remove(self.node.replica.group)
        self.node.replica.entries.log.delete()

    def trim(self) -> None:
        """As retention does."""
        entries = self.node.replica.entries
        entries.log.roll()
        entries.drop_before(entries.log.log_end_offset)

    def counts(self) -> tuple[int, int]:
        return self.scrubber.damaged_total, self.scrubber.repaired_total


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.trio.close()


def test_damaged_batch_is_repaired_from_a_peer(scene: Scene) -> None:
    scene.flip(70)

    scene.scrub()

    assert scene.counts() == (1, 1)


def test_group_that_was_removed_is_not_looked_at(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    asyncio.run(scene.scrubber.step())  # A round begins, with the group in it.
    scene.remove()

    scene.scrub()

    assert scene.counts() == (0, 0)
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("leaves", [Scene.remove, Scene.trim])
def test_batch_deleted_during_the_call_to_a_peer_needs_no_repair(
    scene: Scene, leaves: Callable[[Scene], None], caplog: pytest.LogCaptureFixture
) -> None:
    scene.flip(70)
    scene.meanwhile = lambda: leaves(scene)

    scene.scrub()

    assert scene.counts() == (1, 0)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


def test_leader_with_a_damaged_uncommitted_batch_resigns(scene: Scene) -> None:
    """No other member has the batch, so it can be neither sent nor repaired: a leader that stayed would
    block all commits of its group for ever (found by simulation)."""
    trio = scene.trio
    trio.nodes[0].replica.transfer_leadership(MEMBERS[HERE])
    trio.settle()
    assert trio.leader == HERE
    trio.cut_off = {0, 1}
    trio.append()
    scene.flip(-5)
    trio.cut_off = set()
    trio.tick(5)
    assert [node.machine.committed_end for node in trio.nodes] == [5, 5, 5]

    scene.scrub()
    trio.settle()
    trio.tick(3)

    assert trio.leader in (0, 1)
    trio.append()
    trio.tick(3)
    assert [node.machine.committed_end for node in trio.nodes] == [6, 6, 6]
