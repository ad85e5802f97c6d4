"""Patches of a planted bug are undone at the end of their context."""

from __future__ import annotations

from kafkaesque.lab.sim.planted.bug import Patches


class Base:
    def answer(self) -> int:
        return 1


class Child(Base):
    pass


def test_patches_are_undone_after_the_context() -> None:
    with Patches() as patches:
        patches.set(Child, "answer", lambda self: 2)
        patches.set(Base, "answer", lambda self: 3)
        patches.set(Base, "answer", lambda self: 4)
        assert (Child().answer(), Base().answer()) == (2, 4)
    assert (Child().answer(), Base().answer()) == (1, 1)
    assert "answer" not in vars(Child)
