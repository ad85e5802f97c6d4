"""Sessions in the replicated state, and the leader's clock that expires them.

Only commands change the sessions. The clock is not replicated: a new leader gives every session its
full timeout again, so a change of leader never expires a session early.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

SESSIONS_MAX = 100_000
"""The most sessions: bounds the memory of clients that open sessions and never close them."""

PASSWORD_BYTES = 16


class ClientSession:
    """One client's session. `next_sequence` is the number of the next write of connection `owner`."""

    __slots__ = ("next_sequence", "owner", "password", "session_id", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int, owner: int) -> None:
        self.session_id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.owner = owner
        self.next_sequence = 0


class _Activity(NamedTuple):
    """When a session was last touched, its timeout, and when the heap checks it next."""

    at_s: float
    timeout_s: float
    check_at_s: float


class ExpiryClock:
    """Finds the sessions that were silent for longer than their timeout. Monotonic seconds.

    The heap's entry of a session may be early: `expired` then requeues it by the time it was last
    heard, so a ping costs one dictionary entry. An entry whose time differs from the session's
    `check_at_s` was replaced and is dropped.
    """

    __slots__ = ("_activity", "_heap", "_slack_s")

    def __init__(self, slack_s: float = 0.0) -> None:
        self._slack_s = slack_s
        """Allows for the delay of reports from other servers."""
        self._activity: dict[int, _Activity] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._activity)

    def start(self, session_id: int, timeout_ms: int, now_s: float) -> None:
        """Starts the timeout of a session that is new or was attached again."""
        timeout_s = timeout_ms / 1000
        due_s = now_s + timeout_s + self._slack_s
        known = self._activity.get(session_id)
        if known is not None and known.check_at_s <= due_s:
            self._activity[session_id] = _Activity(now_s, timeout_s, known.check_at_s)
        else:
            self._activity[session_id] = _Activity(now_s, timeout_s, due_s)
            heapq.heappush(self._heap, (due_s, session_id))

    def touch(self, session_ids: Iterable[int], now_s: float) -> None:
        """Clients sent requests in these sessions; unknown ids are ignored."""
        for session_id in session_ids:
            known = self._activity.get(session_id)
            if known is not None:
                self._activity[session_id] = _Activity(now_s, known.timeout_s, known.check_at_s)

    def forget(self, session_id: int) -> None:
        self._activity.pop(session_id, None)

    def clear(self) -> None:
        self._activity.clear()
        self._heap.clear()

    def expired(self, now_s: float) -> list[int]:
        """The expired sessions. Each is returned again a timeout later, in case its close failed."""
        ended: list[int] = []
        while self._heap and self._heap[0][0] <= now_s:
            check_at_s, session_id = heapq.heappop(self._heap)
            known = self._activity.get(session_id)
            if known is None or known.check_at_s != check_at_s:
                continue
            due_s = known.at_s + known.timeout_s + self._slack_s
            if due_s <= now_s:
                ended.append(session_id)
                due_s = now_s + known.timeout_s
            self._activity[session_id] = known._replace(check_at_s=due_s)
            heapq.heappush(self._heap, (due_s, session_id))
        return ended
