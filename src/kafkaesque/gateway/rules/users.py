"""The users of a gateway: their connections, and a token bucket that limits what each may send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kafkaesque.model.ids import TimestampMs
from kafkaesque.model.token_bucket import TokenBucket


@dataclass(slots=True, eq=False)
class User:
    """All connections of a user share one token bucket."""

    name: str
    bucket: TokenBucket
    since_ms: TimestampMs
    connections: int = 0


class Users:
    """The users that have a connection to this gateway."""

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
        """Returns None if the user has too many connections already."""
        user = self._users.get(name)
        if user is None:
            bucket = TokenBucket(self._rate, self._burst, now_s)
            user = self._users[name] = User(name, bucket, now_ms)
        if user.connections >= self._connections_max:
            return None
        user.connections += 1
        return user

    def disconnect(self, user: User) -> bool:
        """Returns True if this was the user's last connection."""
        user.connections -= 1
        if user.connections == 0:
            del self._users[user.name]
            return True
        return False
