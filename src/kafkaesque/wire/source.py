"""Builds and compiles the source of one generated function.

This is the only place in the project that runs generated code. The text comes from our own message
tables (class and field names that are Python identifiers of this repository) and from constants
bound by name. It never contains bytes from a peer or values of settings.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """The lines of a function under construction, and the constants they refer to."""

    def __init__(self, constants: dict[str, Any] | None = None) -> None:
        self._lines: list[str] = []
        self._depth = 0
        self._constants: dict[str, Any] = dict(constants or {})
        self._names: dict[int, str] = {}
        self._count = 0

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self, stem: str) -> str:
        """A local name that nothing else in this function uses."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """The name of `value` in the function; the same value always gets the same name."""
        name = self._names.get(id(value))
        if name is None:
            name = self._names[id(value)] = self.fresh(stem)
            self._constants[name] = value  # also keeps id(value) from being used again
        return name

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Compiles and returns the function `function`. `title` is its file name in tracebacks."""
        text = "\n".join(self._lines) + "\n"
        filename = f"<generated {title}>"
        # Lets tracebacks and debuggers show the generated lines. Without an mtime it never expires.
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
        namespace = self._constants
        exec(compile(text, filename, "exec"), namespace)  # noqa: S102 - see the module docstring
        generated: Callable[..., Any] = namespace[function]
        return generated
