"""A declared task: its name, the type of its arguments, and its policy."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.rules.retry import Retry

P = ParamSpec("P")
R = TypeVar("R")

Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Policy:
    """The options of a task's declaration."""

    queue: str
    retry: Retry = field(default_factory=Retry)
    time_limit_s: float | None = None
    key: Callable[..., str | None] | None = None
    """Returns the ordering key of a call from its arguments."""
    version: int = 1
    upgrades: Mapping[int, Upgrade] = field(default_factory=dict)
    """For each older version that may still be in the log: converts its arguments to the next version."""
    effectively_once: bool = False
    """The records that the call sends and its offset are committed in one transaction."""
    keeps_result: bool = False
    expires_s: float | None = None
    """A call that has not started this long after it was sent is given up."""


class Arguments(Generic[P]):
    """The parameters of a function as a JSON object, checked against their annotations."""

    def __init__(self, name: str, function: Callable[P, Any]) -> None:
        self._signature = inspect.signature(function)
        hints = typing.get_type_hints(function, include_extras=True)
        fields: list[Any] = []
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise TypeError(
                    f"task {name!r} takes *{parameter.name}: its parameters must be named"
                )
            annotation = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                fields.append((parameter.name, annotation))
            else:
                fields.append((parameter.name, annotation, _default(parameter.default)))
        self._struct = msgspec.defstruct(
            f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        self._decoder = msgspec.json.Decoder(self._struct)
        self._names = tuple(self._signature.parameters)
        self._positional_only = tuple(
            parameter.name
            for parameter in self._signature.parameters.values()
            if parameter.kind is parameter.POSITIONAL_ONLY
        )

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The given arguments by name. Defaults are not sent; the worker has them."""
        try:
            return dict(self._signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TaskRefused(str(error)) from None

    def encode(self, named: Mapping[str, Any]) -> bytes:
        """Raises TaskRefused unless `decode` would accept the result."""
        try:
            data = msgspec.json.encode(named)
            self._decoder.decode(data)
        except (msgspec.MsgspecError, TypeError, OverflowError) as error:
            raise TaskRefused(str(error)) from None
        return data

    def decode(self, data: bytes | msgspec.Raw) -> dict[str, Any]:
        """Raises msgspec.ValidationError or DecodeError, which names the wrong argument."""
        values = self._decoder.decode(data)
        return {name: getattr(values, name) for name in self._names}

    def convert(self, named: dict[str, Any]) -> dict[str, Any]:
        values = msgspec.convert(named, self._struct)
        return {name: getattr(values, name) for name in self._names}

    def call(self, function: Callable[..., R], named: dict[str, Any]) -> R:
        if not self._positional_only:
            return function(**named)
        first = [named[name] for name in self._positional_only]
        rest = {name: value for name, value in named.items() if name not in self._positional_only}
        return function(*first, **rest)


def _default(value: Any) -> Any:
    return msgspec.field(default_factory=lambda: value)


@dataclass(frozen=True, slots=True)
class DeclaredTask:
    """A task as a worker runs it."""

    name: str
    function: Callable[..., Any]
    arguments: Arguments[Any]
    policy: Policy
    is_async: bool

    @classmethod
    def of(cls, name: str, function: Callable[..., Any], policy: Policy) -> DeclaredTask:
        return cls(
            name, function, Arguments(name, function), policy, inspect.iscoroutinefunction(function)
        )

    def invoke(self, named: dict[str, Any]) -> Awaitable[Any] | Any:
        return self.arguments.call(self.function, named)

    def key_of(self, named: Mapping[str, Any]) -> str | None:
        if self.policy.key is None:
            return None
        signature = inspect.signature(self.function)
        full = {
            name: named.get(name, parameter.default)
            for name, parameter in signature.parameters.items()
        }
        wanted = inspect.signature(self.policy.key).parameters
        takes_all = any(one.kind is one.VAR_KEYWORD for one in wanted.values())
        chosen = full if takes_all else {name: full[name] for name in wanted if name in full}
        return self.policy.key(**chosen)
