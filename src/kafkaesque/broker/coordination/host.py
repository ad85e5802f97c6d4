"""What a connection needs of the server that accepted it."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Protocol

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.replicated import Replicated
from kafkaesque.broker.coordination.words import ClientView, ServerCounts


class Registries(Protocol):
    """What keeps the registries true."""

    def refresh(self, paths: Sequence[str]) -> Awaitable[None] | None:
        """Before an answer about `paths`: None if the registries are as they should be now."""
        ...

    def tick(self) -> None:
        """Now and then, for those who watch; never waits."""
        ...


class NoRegistries:
    """Of a server that has none."""

    def refresh(self, paths: Sequence[str]) -> None:
        return None

    def tick(self) -> None:
        """There is nothing to do."""


class Served(Protocol):
    """A client's connection, as its server sees it."""

    def __hash__(self) -> int: ...

    @property
    def view(self) -> ClientView: ...

    @property
    def outstanding(self) -> int:
        """Requests taken in and not answered yet."""
        ...

    def count_as_heard_if_held_back(self) -> None: ...

    def abort(self) -> None: ...

    def end(self, reason: str) -> None: ...


class Host(Protocol):
    config: CoordinationConfig
    coordinator: Coordinator
    replicated: Replicated
    counts: ServerCounts
    registries: Registries

    def accept(self, connection: Served, address: str) -> str | None:
        """None to serve the connection, or why it is refused."""
        ...

    def lost(self, connection: Served, address: str) -> None: ...

    def wall_ms(self) -> int: ...

    def new_session(self) -> tuple[int, bytes]:
        """A session id and its password that nobody can guess."""
        ...

    def answer_word(self, word: str) -> str: ...

    def failed(self, error: BaseException) -> None:
        """Something that must not happen did: the node decides whether it goes on."""
        ...
