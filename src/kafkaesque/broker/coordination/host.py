"""What a connection needs of the server that accepted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.replicated import Replicated
from kafkaesque.broker.coordination.words import ServerCounts

if TYPE_CHECKING:
    from kafkaesque.broker.coordination.connection import Connection


class Host(Protocol):
    config: CoordinationConfig
    coordinator: Coordinator
    replicated: Replicated
    counts: ServerCounts

    def accept(self, connection: Connection, address: str) -> str | None:
        """None to serve the connection, or why it is refused."""
        ...

    def lost(self, connection: Connection, address: str) -> None: ...

    def wall_ms(self) -> int: ...

    def new_session(self) -> tuple[int, bytes]:
        """A session id and its password that nobody can guess."""
        ...

    def answer_word(self, word: str) -> str: ...

    def failed(self, error: BaseException) -> None:
        """Something that must not happen did: the node decides whether it goes on."""
        ...
