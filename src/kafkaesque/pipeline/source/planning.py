"""Plans a read on the driver: where it begins and ends, and what each task reads.

`Planner` queries the cluster; the arithmetic is in `offsets.py`. Spark calls it from one process, one
method at a time. If records were lost, the planner fails or skips them, as `failOnDataLoss` says.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from kafkaesque.pipeline.errors import DataLoss, InvalidOption
from kafkaesque.pipeline.kafka.cluster import (
    EARLIEST,
    LATEST,
    ClusterClient,
    RetriableError,
    TopicMissing,
)
from kafkaesque.pipeline.rules.offsets import OffsetRange, Offsets, Partition, limit_end, split
from kafkaesque.pipeline.source.options import Bound, KafkaReadOptions

log = logging.getLogger(__name__)

_WORDS = {"earliest": EARLIEST, "latest": LATEST}


class Planner:
    """Offsets of one subscription."""

    def __init__(self, options: KafkaReadOptions) -> None:
        self._options = options
        self._cluster = ClusterClient(options.read.cluster)

    def close(self) -> None:
        self._cluster.close()

    def partitions(self) -> list[Partition]:
        """The current partitions of the subscription. Raises TopicMissing if a named topic does not exist."""
        return self._cluster.retry("list partitions", lambda: self._partitions(strict=True))

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
        """The current offsets of a bound."""
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
        """In an offset JSON, -2 means earliest and -1 latest."""
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
                f"{topic}-{index} has no record at or after {times_ms[younger[0]]}",
                "startingOffsetsByTimestampStrategy=latest starts at its end",
            )
        return {**found, **self._offsets(dict.fromkeys(younger, LATEST))}

    def _offsets(self, timestamps: Mapping[Partition, int]) -> dict[Partition, int]:
        return self._cluster.retry(
            "list offsets",
            lambda: self._cluster.list_offsets(
                timestamps, committed_only=self._options.read.committed_only
            ),
        )

    def latest(self) -> dict[Partition, int]:
        """The ends of the existing partitions. Missing ones are left out; `next_end` detects their loss."""

        def list_ends() -> dict[Partition, int]:
            try:
                return self._cluster.list_offsets(
                    dict.fromkeys(self._partitions(strict=False), LATEST),
                    committed_only=self._options.read.committed_only,
                )
            except TopicMissing as error:
                # It was deleted between the two requests, or is assigned and not created yet.
                raise RetriableError(f"{error} does not exist") from error

        return self._cluster.retry("list offsets", list_ends)

    def with_new_partitions(self, start: Offsets, latest: Offsets) -> dict[Partition, int]:
        """`start`, plus the earliest offset of each partition that is new since then."""
        new = [partition for partition in latest if partition not in start]
        return {**start, **self._offsets(dict.fromkeys(new, EARLIEST))}

    def next_end(
        self, start: Offsets, latest: Offsets, rows_max: int | None
    ) -> dict[Partition, int]:
        """The end of a batch that begins at `start`."""
        self._detect_loss(start, latest)
        if rows_max is None:
            return dict(latest)
        return limit_end(self.with_new_partitions(start, latest), latest, rows_max)

    def _detect_loss(self, start: Offsets, latest: Offsets) -> None:
        for partition, offset in start.items():
            name = f"{partition[0]}-{partition[1]}"
            end = latest.get(partition)
            if end is None:
                self._report_loss(f"{name} is gone; it was read up to {offset}")
            elif end < offset:
                self._report_loss(
                    f"{name} ends at {end} but was read up to {offset}: the topic was recreated"
                )

    def _report_loss(self, text: str) -> None:
        """Raises DataLoss, or logs the loss if `failOnDataLoss` is false."""
        if self._options.read.fail_on_data_loss:
            raise DataLoss(text, "failOnDataLoss=false skips the missing records")
        log.warning("data lost: %s", text)

    def ranges(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """The ranges that tasks read to get from `start` to `end`."""
        begin = self.with_new_partitions(start, end)
        restarted = [partition for partition in end if end[partition] < begin[partition]]
        # A recreated topic is read from its beginning; Spark's connector would skip to its end.
        begin.update(self._offsets(dict.fromkeys(restarted, EARLIEST)))
        whole = [
            OffsetRange(*partition, begin[partition], end[partition]) for partition in sorted(end)
        ]
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
