"""Maker of the compiled short way: it takes the Python method of the same behaviour."""

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

def serve_plainly(
    pure: F,
    slots: tuple[tuple[type, str], ...],
    monotonic: Callable[[], float],
    first_bucket_seconds: float,
    /,
) -> F: ...
