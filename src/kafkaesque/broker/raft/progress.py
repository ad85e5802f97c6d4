"""A leader's view of one follower, and how much it may send to it.

    PROBE      where the logs diverge is unknown: one Append at a time, then wait for the answer
    REPLICATE  known: Appends are pipelined up to the window, `next_index` runs ahead
    SNAPSHOT   the follower needs entries that are gone: wait until the snapshot is installed

A lost Append is detected when the follower rejects the next one, or, if none follows, when the answer
to a later heartbeat reports too little (`SentMark`). Every such answer also repeats a lost
acknowledgement. Only new information causes a resend: duplicate answers never multiply messages.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from kafkaesque.broker.raft.types import NO_INDEX, NO_ROUND, LogIndex, Round
from kafkaesque.model.errors import check


class ProgressState(Enum):
    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class Inflights:
    """Appends sent and not yet acknowledged, oldest first, bounded in number and in bytes."""

    __slots__ = ("_bytes_max", "_messages", "_messages_max", "size_bytes")

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._messages: deque[tuple[LogIndex, int]] = deque()
        self.size_bytes = 0
        """The sum over `_messages`. The last message may exceed the bound."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def is_full(self) -> bool:
        return len(self._messages) >= self._messages_max or self.size_bytes >= self._bytes_max

    def add(self, last_index: LogIndex, size_bytes: int) -> None:
        check(not self.is_full, "an Append was sent through a full window")
        self._messages.append((last_index, size_bytes))
        self.size_bytes += size_bytes

    def free_to(self, match_index: LogIndex) -> None:
        """The follower has everything up to `match_index`."""
        while self._messages and self._messages[0][0] <= match_index:
            self.size_bytes -= self._messages.popleft()[1]

    def clear(self) -> None:
        self._messages.clear()
        self.size_bytes = 0


class SentMark(NamedTuple):
    """When the heartbeat of `round` was sent, everything up to `sent_index` had been sent."""

    round: Round
    sent_index: LogIndex


class Progress:
    """One follower or learner, as its leader sees it."""

    __slots__ = (
        "acked_round",
        "has_answered",
        "inflights",
        "is_active",
        "is_unreachable",
        "is_waiting",
        "match_index",
        "next_index",
        "probe_bytes",
        "probe_last_index",
        "sent_mark",
        "snapshot_index",
        "snapshot_ticks",
        "state",
        "was_active",
    )

    def __init__(self, next_index: LogIndex, inflights: Inflights) -> None:
        self.match_index = NO_INDEX
        """The follower's log equals ours up to here, on its disk. Never decreases; < next_index."""
        self.next_index = next_index
        """The first entry not yet sent."""
        self.state = ProgressState.PROBE
        self.inflights = inflights
        """Empty unless REPLICATE."""
        self.is_waiting = False
        """PROBE: the one Append is in flight."""
        self.probe_last_index = NO_INDEX
        """PROBE and waiting: the last entry of the Append in flight."""
        self.probe_bytes = 0
        self.snapshot_index = NO_INDEX
        """SNAPSHOT: the index of the one in flight; match_index < snapshot_index. Else 0."""
        self.snapshot_ticks = 0
        self.sent_mark: SentMark | None = None
        """At most one measurement is in progress."""
        self.acked_round = NO_ROUND
        """The newest round of heartbeats it answered."""
        self.is_active = True
        """Answered in the current election timeout; initially true."""
        self.was_active = False
        """Answered in the election timeout before."""
        self.is_unreachable = False
        """Reported by the driver; until it answers again."""
        self.has_answered = False
        """In this term, and was not lost since. A member that is away when a leader is elected is not
        known to follow it, and may follow the next leader when it comes back."""

    @property
    def answers(self) -> bool:
        """Whether it seems alive; a window that has just begun is not evidence enough."""
        return (self.is_active or self.was_active) and not self.is_unreachable

    def begin_window(self) -> None:
        self.was_active, self.is_active = self.is_active, False

    @property
    def can_send(self) -> bool:
        if self.is_unreachable:
            return False
        match self.state:
            case ProgressState.PROBE:
                return not self.is_waiting
            case ProgressState.REPLICATE:
                return not self.inflights.is_full
            case ProgressState.SNAPSHOT:
                return False

    def sent(self, count: int, size_bytes: int) -> None:
        """An Append with `count` entries from `next_index` on was sent."""
        last_index = LogIndex(self.next_index + count - 1)
        if self.state is ProgressState.REPLICATE:
            self.next_index = LogIndex(last_index + 1)
            self.inflights.add(last_index, size_bytes)
        else:
            self.is_waiting = True
            self.probe_last_index = last_index
            self.probe_bytes = size_bytes

    def sent_snapshot(self, index: LogIndex) -> None:
        self._enter(ProgressState.SNAPSHOT)
        self.snapshot_index = index

    def acknowledged(self, match_index: LogIndex) -> bool:
        """The follower has all up to `match_index`; True if that is new."""
        is_news = match_index > self.match_index
        self.match_index = max(self.match_index, match_index)
        if self.state is ProgressState.REPLICATE:
            self.next_index = max(self.next_index, LogIndex(match_index + 1))
            self.inflights.free_to(match_index)
        elif self.match_index >= self.snapshot_index:
            self._pipeline()
        else:
            self.next_index = max(self.next_index, LogIndex(match_index + 1))
        return is_news

    def _pipeline(self) -> None:
        """Starts to pipeline. An acknowledgement short of the probe's end means that the probe was
        accepted and is not on disk yet: it need not be sent again."""
        probe_last_index, probe_bytes = self.probe_last_index, self.probe_bytes
        is_taken = self.is_waiting and self.match_index >= self.next_index - 1
        self._enter(ProgressState.REPLICATE)
        self.next_index = LogIndex(self.match_index + 1)
        if is_taken and probe_last_index > self.match_index:
            self.next_index = LogIndex(probe_last_index + 1)
            self.inflights.add(probe_last_index, probe_bytes)

    def rejected(self, prev_index: LogIndex, next_index: LogIndex) -> bool:
        """The entry at `prev_index` did not match; the next attempt starts at `next_index`. False
        for an outdated answer."""
        if self.state is ProgressState.SNAPSHOT or prev_index <= self.match_index:
            return False
        if self.state is ProgressState.PROBE and prev_index != self.next_index - 1:
            return False
        self.probe_from(min(next_index, prev_index))
        return True

    def probe_from(self, next_index: LogIndex) -> None:
        self._enter(ProgressState.PROBE)
        self.next_index = max(next_index, LogIndex(self.match_index + 1))

    def mark(self, round_: Round) -> None:
        """Before a heartbeat is sent: records what was sent so far, unless an earlier mark is still
        unanswered."""
        if self.sent_mark is not None:
            return
        if self.state is ProgressState.REPLICATE:
            self.sent_mark = SentMark(round_, LogIndex(self.next_index - 1))
        elif self.is_waiting:
            self.sent_mark = SentMark(round_, self.probe_last_index)

    def answered(self, round_: Round, received_index: LogIndex, match_index: LogIndex) -> bool:
        """The answer to a heartbeat. It repeats acknowledgements that may have been lost, and shows
        whether Appends were lost, or whether a restarted follower has lost track of which entries
        match ours. True if it acknowledges something new."""
        self.acked_round = max(self.acked_round, round_)
        is_news = match_index > self.match_index
        if is_news or (self.is_waiting and match_index >= self.probe_last_index):
            self.acknowledged(match_index)
        if self.sent_mark is not None and round_ >= self.sent_mark.round:
            sent_index = self.sent_mark.sent_index
            self.sent_mark = None
            if sent_index > received_index:
                # Only the rejection of a probe may be lost: repeating the probe finds the divergence
                # faster than going back to the follower's commit index.
                floor = self.next_index if self.state is ProgressState.PROBE else NO_INDEX
                self.probe_from(max(floor, LogIndex(received_index + 1)))
        return is_news

    def heard(self) -> None:
        self.is_active = True
        self.is_unreachable = False
        self.has_answered = True

    def lost_contact(self) -> None:
        """Messages in flight are lost; nothing but heartbeats is sent until it answers."""
        self.start_over()
        self.is_unreachable = True
        self.has_answered = False

    def start_over(self) -> None:
        """Forgets what is in flight. Where the logs diverge may be unknown, and match_index far below
        it: a probe is repeated where it was."""
        is_known = self.state is ProgressState.REPLICATE
        self.probe_from(LogIndex(self.match_index + 1) if is_known else self.next_index)

    def _enter(self, state: ProgressState) -> None:
        self.state = state
        self.is_waiting = False
        self.probe_last_index = NO_INDEX
        self.snapshot_index = NO_INDEX
        self.snapshot_ticks = 0
        self.sent_mark = None
        self.inflights.clear()

    def validate(self, last_index: LogIndex) -> None:
        check(self.match_index < self.next_index <= last_index + 1, "progress: match < next")
        check(self.match_index <= last_index, "a follower has more than its leader")
        check(
            self.state is ProgressState.REPLICATE or not self.inflights, "window outside pipeline"
        )
        check((self.state is ProgressState.SNAPSHOT) == (self.snapshot_index > 0), "snapshot state")
        check(not self.is_waiting or self.state is ProgressState.PROBE, "waiting outside a probe")
