"""Maker of the compiled append: it takes the Python method of the same behaviour."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

def append(
    pure: F,
    slots: tuple[tuple[type, str], ...],
    header: type,
    limits: tuple[int, ...],
    /,
) -> F: ...
