"""The interfaces between a connection and the server that accepted it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.four_letter_words import ClientView, PacketCounts
from kafkaesque.broker.coordination.replicated import Replicated


class Registries(Protocol):
    """Keeps the registries up to date."""

    def refresh(self, paths: Sequence[str]) -> Awaitable[None] | None:
        """Called before an answer about `paths`. None if the registries are up to date."""
        ...

    def tick(self) -> None:
        """Periodic refresh for watches; never waits."""
        ...


class NoRegistries:
    """For a server without registries."""

    def refresh(self, paths: Sequence[str]) -> None:
        return None

    def tick(self) -> None:
        """Nothing."""


class Served(Protocol):
    """A client's connection, as its server uses it."""

    def __hash__(self) -> int: ...

    @property
    def view(self) -> ClientView: ...

    @property
    def outstanding(self) -> int:
        """Requests read and not answered yet."""
        ...

    def touch_if_paused(self) -> None: ...

    def abort(self) -> None: ...

    def end(self, reason: str) -> None: ...


class Host(Protocol):
    """The server, as a connection uses it."""

    config: CoordinationConfig
    coordinator: Coordinator
    replicated: Replicated
    counts: PacketCounts
    registries: Registries

    def accept(self, connection: Served, address: str) -> str | None:
        """None to accept the connection, else why it is refused."""
        ...

    def lost(self, connection: Served, address: str) -> None: ...

    def wall_ms(self) -> int: ...

    def new_session(self) -> tuple[int, bytes]:
        """A random session id and password."""
        ...

    def answer_word(self, word: str) -> str: ...

    def failed(self, error: BaseException) -> None:
        """Reports an unexpected error; the node decides whether to stop."""
        ...
