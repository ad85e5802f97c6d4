"""Which offsets a read begins and ends at, and what each task reads: the driver's part.

`Planner` asks the cluster; the arithmetic is `offsets.py`'s. Spark calls it in one process, a
method at a time. What was lost is decided here too: fail, or go on without it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkaesque.pipeline.errors import DataLoss, InvalidOption
from kafkaesque.pipeline.kafka.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    Partition,
    Passing,
    TopicMissing,
)
from kafkaesque.pipeline.kafka.fetching import Range
from kafkaesque.pipeline.source.offsets import Offsets, limit_end, split
from kafkaesque.pipeline.source.options import Bound, SourceOptions

log = logging.getLogger(__name__)

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


class Planner:
    """Offsets of one subscription."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.read.cluster)

    def close(self) -> None:
        self._cluster.close()

    def partitions(self) -> list[Partition]:
        """Every partition that the subscription means now; TopicMissing if it names one too many."""
        return self._cluster.persist("list partitions", lambda: self._partitions(strict=True))

    def _partitions(self, *, strict: bool) -> list[Partition]:
        options = self._options
        if options.assigned:
            return sorted(options.assigned)
        topics: Iterable[str] = options.topics
        if options.pattern is not None:
            topics = self._cluster.matching_topics(options.pattern)
        known = self._cluster.topology(topics).leaders if topics else {}
        missing = set(options.topics) - {topic for topic, _ in known}
        if missing and strict:
            raise TopicMissing(", ".join(sorted(missing)))
        return sorted(known)

    def resolve(self, bound: Bound) -> dict[Partition, int]:
        """The numbers that a bound means now."""
        try:
            partitions = self.partitions()
        except TopicMissing as error:
            raise InvalidOption(f"there is no topic {error}", "create it first") from error
        if bound.word is not None:
            return self._offsets(dict.fromkeys(partitions, _WORDS[bound.word]))
        if bound.offsets is not None:
            return self._resolve_numbers(bound.offsets, partitions)
        if bound.timestamps_ms is not None:
            _require_same(partitions, bound.timestamps_ms)
            return self._resolve_times(bound.timestamps_ms, bound.latest_if_younger)
        times = dict.fromkeys(partitions, bound.timestamp_ms or 0)
        return self._resolve_times(times, bound.latest_if_younger)

    def _resolve_numbers(
        self, offsets: Offsets, partitions: list[Partition]
    ) -> dict[Partition, int]:
        """-2 and -1 in an offset JSON stand for earliest and latest."""
        _require_same(partitions, offsets)
        symbolic = {p: offset for p, offset in offsets.items() if offset in (EARLIEST, LATEST)}
        return {**offsets, **self._offsets(symbolic)}

    def _resolve_times(
        self, times_ms: Mapping[Partition, int], latest_if_younger: bool
    ) -> dict[Partition, int]:
        found = self._offsets(times_ms)
        younger = [partition for partition, offset in found.items() if offset < 0]
        if younger and not latest_if_younger:
            topic, index = younger[0]
            raise InvalidOption(
                f"{topic}-{index} has no record as young as {times_ms[younger[0]]}",
                "startingOffsetsByTimestampStrategy=latest starts at its end",
            )
        return {**found, **self._offsets(dict.fromkeys(younger, LATEST))}

    def _offsets(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int]:
        return self._cluster.persist(
            "list offsets",
            lambda: self._cluster.list_offsets(
                timestamps, committed_only=self._options.read.committed_only
            ),
        )

    def latest(self) -> dict[Partition, int]:
        """Ends of the partitions that are there: what is gone is missing here, and missed later."""

        def ask() -> dict[Partition, int]:
            try:
                return self._cluster.list_offsets(
                    dict.fromkeys(self._partitions(strict=False), LATEST),
                    committed_only=self._options.read.committed_only,
                )
            except TopicMissing as error:
                # It went between the two questions, or is assigned and not there yet.
                raise Passing(f"{error} is not there") from error

        return self._cluster.persist("list offsets", ask)

    def with_new_partitions(self, start: Offsets, latest: Offsets) -> dict[Partition, int]:
        """`start`, and for partitions it does not know their earliest: none of theirs was read."""
        new = [partition for partition in latest if partition not in start]
        return {**start, **self._offsets(dict.fromkeys(new, EARLIEST))}

    def next_end(
        self, start: Offsets, latest: Offsets, rows_max: int | None
    ) -> dict[Partition, int]:
        """Where a batch from `start` ends."""
        self._refuse_loss(start, latest)
        if rows_max is None:
            return dict(latest)
        return limit_end(self.with_new_partitions(start, latest), latest, rows_max)

    def _refuse_loss(self, start: Offsets, latest: Offsets) -> None:
        for partition, offset in start.items():
            name = f"{partition[0]}-{partition[1]}"
            end = latest.get(partition)
            if end is None:
                self.lose(f"{name} is gone; {offset} was read last")
            elif end < offset:
                self.lose(f"{name} ends at {end} but was read up to {offset}: it was made anew")

    def lose(self, text: str) -> None:
        """DataLoss, or a line in the log where the user prefers to go on."""
        if self._options.read.fail_on_data_loss:
            raise DataLoss(text, "failOnDataLoss=false goes on without what is gone")
        log.warning("data lost: %s", text)

    def ranges(self, start: Offsets, end: Offsets) -> list[Range]:
        """What tasks read to get from `start` to `end`."""
        begin = self.with_new_partitions(start, end)
        restarted = [partition for partition in end if end[partition] < begin[partition]]
        # A topic made anew is read from its beginning; Spark's connector skips to its end instead.
        begin.update(self._offsets(dict.fromkeys(restarted, EARLIEST)))
        whole = [Range(*partition, begin[partition], end[partition]) for partition in sorted(end)]
        return split(whole, self._options.tasks_min)


def _require_same(partitions: list[Partition], given: Mapping[Partition, int]) -> None:
    missing = sorted(set(partitions) - set(given))
    extra = sorted(set(given) - set(partitions))
    if missing or extra:
        listed = ", ".join(f"{topic}-{index}" for topic, index in (missing or extra)[:3])
        raise InvalidOption(
            f"the offsets {'lack' if missing else 'name'} {listed}"
            f"{'' if missing else ', which the subscription does not have'}"
        )
