"""Which leader epoch wrote which offsets of a log. Pure; saved in the log's structure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from operator import itemgetter
from typing import Final

from kafkaesque.model.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

EpochStart = tuple[LeaderEpoch, Offset]
NO_EPOCH_START: Final[EpochStart] = (NO_EPOCH, NO_OFFSET)
_epoch = itemgetter(0)
_start = itemgetter(1)


class LeaderEpochs:
    """Epochs with the first offset of each; both ascend strictly (LeaderEpochFileCache)."""

    __slots__ = ("_starts", "latest")

    def __init__(self, starts: Iterable[EpochStart] = ()) -> None:
        self._starts = list(starts)
        self.latest = self._starts[-1][0] if self._starts else NO_EPOCH

    @property
    def latest_start(self) -> EpochStart:
        """The latest epoch with its first offset, NO_EPOCH_START if there is none."""
        return self._starts[-1] if self._starts else NO_EPOCH_START

    @property
    def has_at_most_one(self) -> bool:
        """True if the latest epoch is the only one, so that the sync point describes all."""
        return len(self._starts) <= 1

    def starts(self) -> list[EpochStart]:
        return list(self._starts)

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Records that `epoch` starts at `start_offset`; False if the epoch is known or older."""
        if epoch <= self.latest:
            return False
        while self._starts and self._starts[-1][1] >= start_offset:
            self._starts.pop()
        self._starts.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_of(self, epoch: LeaderEpoch, log_end_offset: Offset) -> EpochStart:
        """The largest epoch at or below `epoch` that wrote something, and its end offset.

        (NO_EPOCH, NO_OFFSET) for an epoch after the latest: KIP-101, KIP-279, KIP-320.
        """
        if epoch < 0 or not self._starts or epoch > self.latest:
            return NO_EPOCH_START
        if epoch == self.latest:
            return epoch, log_end_offset
        higher = bisect_right(self._starts, epoch, key=_epoch)
        end_offset = self._starts[higher][1]
        return (self._starts[higher - 1][0] if higher > 0 else epoch), end_offset

    def at(self, offset: Offset) -> LeaderEpoch:
        """The epoch that wrote `offset`, or would write it; NO_EPOCH before the first."""
        number = bisect_right(self._starts, offset, key=_start)
        return self._starts[number - 1][0] if number > 0 else NO_EPOCH

    def range_at(self, offset: Offset, log_end_offset: Offset) -> EpochStart:
        """The epoch that wrote `offset`, and its end offset."""
        starts = self._starts
        if starts and offset >= starts[-1][1]:
            return starts[-1][0], log_end_offset
        number = bisect_right(starts, offset, key=_start)
        end_offset = starts[number][1] if number < len(starts) else log_end_offset
        return (starts[number - 1][0] if number > 0 else NO_EPOCH), end_offset

    def drop_from(self, offset: Offset) -> None:
        """Drops the epochs that start at or after `offset`, where the log was cut."""
        self._starts = [entry for entry in self._starts if entry[1] < offset]
        self.latest = self._starts[-1][0] if self._starts else NO_EPOCH

    def drop_before(self, offset: Offset) -> None:
        """Drops the epochs that ended before `offset`, where the log now starts."""
        number = bisect_right(self._starts, offset, key=_start)
        if number > 1 or (number == 1 and self._starts[0][1] < offset):
            self._starts[:number] = [(self._starts[number - 1][0], offset)]
