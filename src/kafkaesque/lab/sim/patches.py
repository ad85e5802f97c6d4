"""Changing the product's classes for the time of one run, and putting everything back."""

from __future__ import annotations

from types import TracebackType
from typing import Any


class Patches:
    """A context: whatever `set` changed in it is undone at its end, last first."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> Patches:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._before:
            target, name, value = self._before.pop()
            if value is _ABSENT:
                delattr(target, name)
            else:
                setattr(target, name, value)

    def set(self, target: Any, name: str, value: Any) -> None:
        """`target.name = value` until the end; inherited attributes come back as such."""
        self._before.append((target, name, vars(target).get(name, _ABSENT)))
        setattr(target, name, value)


_ABSENT: Any = object()
