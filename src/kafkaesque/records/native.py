"""Selects compiled or pure versions of the hot functions. The only place that makes this choice.

`_native` exists if a C compiler was available when the package was built (hatch_build.py); importing
it fails if KAFKAESQUE_PURE is set. A compiled function handles the common case itself and calls the
pure function for everything else, so callers see no difference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

try:
    from kafkaesque.records import _native
except ImportError:
    _module: Any = None
else:
    _module = _native

CHECKSUM_BY: str = "google-crc32c" if _module is None else _module.CHECKSUM_BY
"""What computes checksums."""


def compiled(*bound: Any) -> Callable[[F], F]:
    """Decorator that replaces a pure function by the compiled one of the same name, if available.

    `bound` are the values that the compiled function needs from the module: a result class, a limit.
    """

    def choose(pure: F) -> F:
        if _module is None:
            return pure
        function: F = getattr(_module, pure.__name__)(pure, *bound)
        return function

    return choose


def pure(function: F) -> F:
    """The pure function of a compiled one; `function` itself if it is not compiled."""
    bound = getattr(function, "__self__", None)
    found: F = bound[0] if isinstance(bound, tuple) else function
    return found
