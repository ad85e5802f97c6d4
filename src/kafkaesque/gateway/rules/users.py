"""The users of this gateway: who is connected how often, since when, and how much they have sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafkaesque.gateway.rules.rates import Bucket
from kafkaesque.model.ids import TimestampMs


@dataclass(slots=True, eq=False)
class User:
    """All connections of one user share its rate."""

    name: str
    bucket: Bucket
    since_ms: TimestampMs
    connections: int = 0


class Users:
    """A user is known while it has a connection here."""

    def __init__(self, rate: float, burst: int, connections_max: int) -> None:
        self._rate = rate
        self._burst = burst
        self._connections_max = connections_max
        self._users: dict[str, User] = {}

    def __len__(self) -> int:
        return len(self._users)

    def __iter__(self) -> Iterator[User]:
        return iter(list(self._users.values()))

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def connect(self, name: str, now_s: float, now_ms: TimestampMs) -> User | None:
        """None if the user has too many connections already."""
        user = self._users.get(name)
        if user is None:
            user = self._users[name] = User(name, Bucket(self._rate, self._burst, now_s), now_ms)
        if user.connections >= self._connections_max:
            return None
        user.connections += 1
        return user

    def disconnect(self, user: User) -> bool:
        """True if that was the last."""
        user.connections -= 1
        if user.connections == 0:
            del self._users[user.name]
            return True
        return False
