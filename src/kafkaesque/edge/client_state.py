"""The state of a client across connections: position, rooms and unanswered requests.

With it nothing is lost or done twice when connections break. Pure: requests go in, messages to send come
out. `client` does the I/O. The browser's client (`web/client.js`) follows the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafkaesque.edge.protocol.messages import Ask, Auth, Hello, Message, Resume, Send, Sub, Unsub
from kafkaesque.model import backoff

BACKOFF_SECONDS = 0.1
BACKOFF_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """A `token`, or `name` and `password`. `register` creates the account."""

    token: str | None = None
    name: str | None = None
    password: str | None = None
    register: bool = False


def backoff_s(failures: int, chance: float) -> float:
    """Full jitter: many clients of a gateway that died come back at different times."""
    return backoff.backoff_s(failures, BACKOFF_SECONDS, BACKOFF_SECONDS_MAX) * chance


class Addresses:
    """Where to connect next: the targets of the last GOAWAY, then the known addresses in turn."""

    def __init__(self, known: Sequence[str]) -> None:
        self.known = list(known)
        self._preferred: list[str] = []
        self._current = ""

    def next(self) -> str:
        if self._preferred:
            self._current = self._preferred.pop(0)
        else:
            self.known.append(self.known.pop(0))
            self._current = self.known[-1]
        return self._current

    def prefer(self, targets: Sequence[str]) -> None:
        """Sets the GOAWAY targets. They are HOST:PORT; scheme and path are those of the current address."""
        scheme, separator, place = self._current.rpartition("://")
        path = "/" + place.partition("/")[2] if "/" in place else ""
        self._preferred = [f"{scheme}{separator}{target}{path}" for target in targets]


class ClientState:
    """Positions and requests of one client. Requests are kept until they are answered."""

    def __init__(
        self, credentials: Credentials, app_version: str, position: str | None, prefix: str
    ) -> None:
        self._credentials = credentials
        self._app_version = app_version
        self._prefix = prefix
        self._number = 0
        self._requests: dict[str, Send | Ask | Sub | Unsub] = {}
        self.position = position
        self.rooms: dict[str, str | None] = {}
        """Subscribed rooms, with the position in each."""
        self.token = credentials.token

    def new_id(self) -> str:
        self._number += 1
        return f"{self._prefix}-{self._number}"

    # -- connecting ----------------------------------------------------------------------------------

    def opening(self, client: str, credit: int | None) -> Sequence[Message]:
        """The messages to send at once on a new connection."""
        return [
            Hello(self._app_version, client, credit),
            self._auth(),
            Resume(self.position),
        ]

    def _auth(self) -> Auth:
        if self.token is not None:
            return Auth(token=self.token)
        held = self._credentials
        return Auth(name=held.name, password=held.password, register=held.register)

    def welcomed(self, token: str | None) -> Sequence[Message]:
        """Returns the unanswered requests to repeat (a repeated command takes effect once) and the
        subscriptions to renew."""
        if token is not None:
            self.token = token
        again: list[Message] = [
            Sub(self.new_id(), room, position)
            for room, position in self.rooms.items()
            if not self._is_subscribing(room)
        ]
        return [*self._requests.values(), *again]

    def _is_subscribing(self, room: str) -> bool:
        return any(
            isinstance(request, Sub) and request.room == room for request in self._requests.values()
        )

    def refused(self) -> bool:
        """Authentication failed. Returns True if there is something else to try: after a rejected token,
        the password."""
        if self.token is not None and self._credentials.password is not None:
            self.token = None
            return True
        return False

    def registered(self) -> None:
        """The account exists now; further connections log in without registering."""
        held = self._credentials
        self._credentials = Credentials(held.token, held.name, held.password)

    # -- requests ------------------------------------------------------------------------------------

    def request(self, make: Callable[[str], Send | Ask | Sub | Unsub]) -> Send | Ask | Sub | Unsub:
        request = make(self.new_id())
        self._requests[request.id] = request
        return request

    def done(self, request_id: str) -> Send | Ask | Sub | Unsub | None:
        """Removes an answered request; None if it was removed before."""
        return self._requests.pop(request_id, None)

    def waiting(self, request_id: str) -> Send | Ask | Sub | Unsub | None:
        return self._requests.get(request_id)

    @property
    def unanswered(self) -> int:
        return len(self._requests)

    # -- positions -----------------------------------------------------------------------------------

    def reached(self, position: str, room: str | None) -> None:
        if room is None:
            self.position = position
        elif room in self.rooms:
            self.rooms[room] = position
