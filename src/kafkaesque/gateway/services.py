"""What the dialogue with a client needs: the parts of a gateway, put together in `gateway`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kafkaesque.gateway.asks import Asks
from kafkaesque.gateway.commands import CommandWriter
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.counters import Counters
from kafkaesque.gateway.feed import Feed
from kafkaesque.gateway.keys import Keys
from kafkaesque.gateway.passwords import Passwords
from kafkaesque.gateway.rules.routes import Routes
from kafkaesque.gateway.rules.tokens import Tokens
from kafkaesque.gateway.rules.users import Users
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import PartitionIndex


class Peers(Protocol):
    """What is known of the other gateways, and of the routes."""

    @property
    def routes(self) -> Routes: ...

    @property
    def slot(self) -> PartitionIndex:
        """The partition of gw.reply that is this gateway's."""
        ...

    def targets(self, partition: PartitionIndex, *, without_self: bool) -> tuple[str, ...]: ...


class PresenceSink(Protocol):
    """Hears who came and who went."""

    def changed(self, user: str) -> None: ...


@dataclass(slots=True)
class Services:
    """One gateway's."""

    name: str
    config: GatewayConfig
    clock: Clock
    counters: Counters
    users: Users
    asks: Asks
    tokens: Tokens
    keys: Keys
    passwords: Passwords
    writer: CommandWriter
    inbox: Feed
    rooms: Feed
    peers: Peers
    presence: PresenceSink
