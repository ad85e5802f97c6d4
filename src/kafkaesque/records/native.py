"""Whether the hot functions are compiled ones. The only place that knows.

`_native` is there if a C compiler was when the package was built (hatch_build.py), and refuses to be
imported where KAFKAESQUE_PURE is set. A compiled function does the common case itself and hands
every other to the pure one that it was made with, so nobody who calls it can tell which it is.
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
"""What computes checksums, for those who ask about the installation."""


def compiled(*bound: Any) -> Callable[[F], F]:
    """Decorates a pure function: the compiled one of its name takes its place, if there is one.

    `bound` is what the compiled one needs of the module: a class to make, a limit to hold.
    """

    def choose(pure: F) -> F:
        if _module is None:
            return pure
        function: F = getattr(_module, pure.__name__)(pure, *bound)
        return function

    return choose


def pure(function: F) -> F:
    """The pure function behind a compiled one; itself where nothing is compiled."""
    bound = getattr(function, "__self__", None)
    found: F = bound[0] if isinstance(bound, tuple) else function
    return found
