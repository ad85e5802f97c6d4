"""Patches that go when their time is over."""

from __future__ import annotations

from kafkaesque.lab.sim.planted.bug import Patches


class Base:
    def answer(self) -> int:
        return 1


class Child(Base):
    pass


def test_everything_is_as_before_behind_the_context() -> None:
    with Patches() as patches:
        patches.set(Child, "answer", lambda self: 2)
        patches.set(Base, "answer", lambda self: 3)
        patches.set(Base, "answer", lambda self: 4)
        assert (Child().answer(), Base().answer()) == (2, 4)
    assert (Child().answer(), Base().answer()) == (1, 1)
    assert "answer" not in vars(Child)
