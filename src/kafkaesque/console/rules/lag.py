"""Consumer lag: status, trend, time to catch up, and lag in seconds.

The status follows LinkedIn's Burrow (wiki: "Consumer Lag Evaluation Rules"). Its rules look at how
committed and end offsets moved over a window, so there are no thresholds to tune: a lag of 40,000
may be fine, a lag that never shrinks is not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise
from typing import Final, NamedTuple

WINDOW: Final = 10
"""Observations in an evaluation, as in Burrow."""
STEP_S: Final = 3.0
"""Time between two observations; the window spans half a minute."""
TREND_SHARE: Final = 0.05
"""A lag is steady if it changes by less than this share over the window."""


class GroupStatus(IntEnum):
    """In order of severity, so that a group's status is the maximum over its partitions."""

    OK = 0
    IDLE = 1
    """No members and no lag."""
    REWOUND = 2
    """The committed offset moved back, and the lag has not reached zero since."""
    SLOW = 3
    """The group commits, but its lag never shrinks."""
    STALLED = 4
    """The group has members and lag, but its committed offset does not move."""
    STOPPED = 5
    """No members, but lag."""

    @property
    def label(self) -> str:
        return self.name.lower()

    @property
    def level(self) -> str:
        """Severity for the health sentence and colours: good, warn or bad."""
        if self in (GroupStatus.OK, GroupStatus.IDLE):
            return "good"
        return "bad" if self in (GroupStatus.STALLED, GroupStatus.STOPPED) else "warn"


SENTENCES: Final = {
    GroupStatus.OK: "keeps up",
    GroupStatus.IDLE: "has no members and no lag",
    GroupStatus.REWOUND: "was rewound and is catching up",
    GroupStatus.SLOW: "commits, but its lag does not shrink",
    GroupStatus.STALLED: "has members, but they do not commit",
    GroupStatus.STOPPED: "has no members, but unread records",
}


class LagObservation(NamedTuple):
    """Committed and end offset of a partition at one time."""

    at_s: float
    committed: int
    end: int

    @property
    def lag(self) -> int:
        return max(0, self.end - self.committed)


class LagWindow:
    """The last observations of one partition of one group."""

    __slots__ = ("observations",)

    def __init__(self) -> None:
        self.observations: deque[LagObservation] = deque(maxlen=WINDOW)

    def observe(self, at_s: float, committed: int, end: int) -> None:
        """Append. The newest observation is replaced until `STEP_S` have passed since the one before it."""
        seen = self.observations
        if len(seen) >= 2 and at_s - seen[-2].at_s < STEP_S:
            seen.pop()
        seen.append(LagObservation(at_s, committed, end))

    def status(self, has_members: bool) -> GroupStatus:
        return evaluate_lag(self.observations, has_members)


def evaluate_lag(window: Sequence[LagObservation], has_members: bool) -> GroupStatus:
    """Apply Burrow's rules in order."""
    if not window:
        return GroupStatus.OK if has_members else GroupStatus.IDLE
    if window[-1].lag == 0:
        return GroupStatus.OK if has_members else GroupStatus.IDLE
    if not has_members:
        return GroupStatus.STOPPED
    if any(item.lag == 0 for item in window) or len(window) < WINDOW:
        return GroupStatus.OK
    pairs = list(pairwise(window))
    if any(after.committed < before.committed for before, after in pairs):
        return GroupStatus.REWOUND
    if window[0].committed == window[-1].committed:
        return GroupStatus.STALLED
    if all(after.lag >= before.lag for before, after in pairs):
        return GroupStatus.SLOW
    return GroupStatus.OK


def group_status(partitions: Iterable[GroupStatus]) -> GroupStatus:
    return max(partitions, default=GroupStatus.IDLE)


class LagTrend(NamedTuple):
    """How a lag changes: records per second, and growing, shrinking or steady."""

    per_second: float
    word: str

    @property
    def arrow(self) -> str:
        return {"growing": "↗", "shrinking": "↘"}.get(self.word, "→")


STEADY: Final = LagTrend(0.0, "steady")


def trend(points: Sequence[tuple[float, float]]) -> LagTrend:
    """Least-squares slope over (seconds, lag)."""
    if len(points) < 3:
        return STEADY
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    if spread == 0:
        return STEADY
    slope = sum((t - mean_t) * (v - mean_v) for t, v in points) / spread
    change = abs(slope) * (points[-1][0] - points[0][0])
    if change < max(1.0, TREND_SHARE * mean_v):
        return STEADY
    return LagTrend(slope, "growing" if slope > 0 else "shrinking")


def catch_up_s(lag: int, points: Sequence[tuple[float, float]]) -> float | None:
    """Seconds until the lag is zero at the current trend; None if it does not shrink."""
    if lag == 0:
        return 0.0
    found = trend(points)
    return lag / -found.per_second if found.word == "shrinking" else None


class OffsetClock:
    """Estimates when a partition's end passed an offset, by interpolating between observed ends.

    Keeps at most `POINTS_MAX` points and thins out the older half, so that the last minutes are
    precise and the past is coarse.
    """

    __slots__ = ("_points",)
    POINTS_MAX: Final = 96

    def __init__(self) -> None:
        self._points: list[tuple[float, int]] = []

    def observe(self, at_s: float, end: int) -> None:
        points = self._points
        if points and end < points[-1][1]:
            points.clear()  # the topic was re-created
        if len(points) >= 2 and points[-1][1] == end == points[-2][1]:
            points[-1] = (at_s, end)
            return
        points.append((at_s, end))
        if len(points) > self.POINTS_MAX:
            half = self.POINTS_MAX // 2
            self._points = points[:half:2] + points[half:]

    def lag_s(self, committed: int, now_s: float) -> TimeLag:
        """How long ago the first unread record was appended."""
        points = self._points
        if not points or committed >= points[-1][1]:
            return TimeLag(0.0, True)
        if committed < points[0][1]:
            return TimeLag(now_s - points[0][0], False)
        for (t0, end0), (t1, end1) in pairwise(points):
            if end0 <= committed < end1:
                share = (committed - end0) / (end1 - end0)
                return TimeLag(now_s - (t0 + share * (t1 - t0)), True)
        return TimeLag(0.0, True)


class TimeLag(NamedTuple):
    """Lag in seconds; a lower bound if the first unread record predates the observations."""

    seconds: float
    is_exact: bool
