"""Sessions as the replicated log knows them, and the leader's own clock of who is still heard.

The table changes only by commands. The clock is not replicated: a new leader gives every session
its whole timeout anew, so that a change of leader never ends a session early.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import NamedTuple

SESSIONS_MAX = 100_000
"""Most sessions at once: clients that open sessions and never close them cannot fill the memory."""

PASSWORD_BYTES = 16


class Session:
    """One client's session. `next_sequence` is that of the next write of the connection `owner`."""

    __slots__ = ("next_sequence", "owner", "password", "session_id", "timeout_ms")

    def __init__(self, session_id: int, password: bytes, timeout_ms: int, owner: int) -> None:
        self.session_id = session_id
        self.password = password
        self.timeout_ms = timeout_ms
        self.owner = owner
        self.next_sequence = 0


class _Heard(NamedTuple):
    """When a session was last heard, its timeout, and when the heap looks at it next."""

    at_s: float
    timeout_s: float
    look_at_s: float


class ExpiryClock:
    """Which sessions were silent for longer than their timeout. Times are monotonic seconds.

    The heap's entry of a session may be early: `expired` then sees when it was last heard and
    enters it again. A ping so costs a dictionary entry. An entry with another time than the
    session's `look_at_s` was replaced and is dropped.
    """

    __slots__ = ("_heap", "_heard", "_slack_s")

    def __init__(self, slack_s: float = 0.0) -> None:
        self._slack_s = slack_s
        """For what is heard elsewhere and still on its way here."""
        self._heard: dict[int, _Heard] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self._heard)

    def start(self, session_id: int, timeout_ms: int, now_s: float) -> None:
        """Count from now: a session that is new, or attached again with another timeout."""
        timeout_s = timeout_ms / 1000
        due_s = now_s + timeout_s + self._slack_s
        known = self._heard.get(session_id)
        if known is not None and known.look_at_s <= due_s:
            self._heard[session_id] = _Heard(now_s, timeout_s, known.look_at_s)
        else:
            self._heard[session_id] = _Heard(now_s, timeout_s, due_s)
            heapq.heappush(self._heap, (due_s, session_id))

    def touch(self, session_ids: Iterable[int], now_s: float) -> None:
        """These were heard; ids that are not counted here are none of ours."""
        for session_id in session_ids:
            known = self._heard.get(session_id)
            if known is not None:
                self._heard[session_id] = _Heard(now_s, known.timeout_s, known.look_at_s)

    def forget(self, session_id: int) -> None:
        self._heard.pop(session_id, None)

    def clear(self) -> None:
        self._heard.clear()
        self._heap.clear()

    def expired(self, now_s: float) -> list[int]:
        """Sessions whose time is over. Each is told again a timeout later, should its end fail."""
        ended: list[int] = []
        while self._heap and self._heap[0][0] <= now_s:
            look_at_s, session_id = heapq.heappop(self._heap)
            known = self._heard.get(session_id)
            if known is None or known.look_at_s != look_at_s:
                continue
            due_s = known.at_s + known.timeout_s + self._slack_s
            if due_s <= now_s:
                ended.append(session_id)
                due_s = now_s + known.timeout_s
            self._heard[session_id] = known._replace(look_at_s=due_s)
            heapq.heappush(self._heap, (due_s, session_id))
        return ended
