"""Turns frames of a network into records of the log: parses, filters and deduplicates. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from kafkaesque.client.ports import Record
from kafkaesque.events.envelope import Body, Envelope, MalformedEvent, encode
from kafkaesque.events.social import (
    RAW_LENGTH_MAX,
    FrameRejected,
    Post,
    PostDeleted,
    PostEdited,
    PostEvent,
    SourceCursor,
    cursor_envelope,
    post_envelope,
    post_key,
    rejection_envelope,
)
from kafkaesque.events.topics import SOCIAL_CURSORS, SOCIAL_POSTS, SOCIAL_REJECTED
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.cursors import cursor_key
from kafkaesque.sources.rules.dedup_window import DedupVerdict, DedupWindow
from kafkaesque.sources.rules.frames import KEEPALIVE, OVERSIZED, StreamFrame
from kafkaesque.sources.rules.hashtags import HashtagFilter
from kafkaesque.sources.rules.parsing import FrameError, Parser, StreamEnded

REJECTED_PER_BATCH_MAX = 20
"""Limits dead letters, so that a faulty server does not fill the log. All rejections are counted."""


@dataclass(slots=True)
class SourceCounts:
    """Counters since the source started."""

    frames: int = 0
    posts: int = 0
    edits: int = 0
    deletions: int = 0
    duplicates: int = 0
    foreign: int = 0
    withdrawn: int = 0
    unmatched: int = 0
    rejected: int = 0

    def as_dict(self) -> dict[str, int]:
        return {item.name: getattr(self, item.name) for item in fields(self)}


@dataclass(slots=True)
class StreamProgress:
    """How far one stream was read."""

    cursor: int = 0
    read_ms: TimestampMs | None = None


@dataclass(slots=True)
class OutputBatch:
    """Records to write together, in this order, before the cursors."""

    records: list[Record] = field(default_factory=list)
    posts: int = 0
    rejected: int = 0
    stream_ends: list[tuple[str, str]] = field(default_factory=list)
    """Streams that the network announced to end, with its reasons."""


@dataclass(frozen=True, slots=True)
class SourceIdentity:
    """A source's network and name. The name is the key of its cursors and transactions."""

    network: str
    name: str


class FrameProcessor:
    """Processes the frames of a source's streams in order."""

    def __init__(
        self,
        identity: SourceIdentity,
        parser: Parser,
        hashtags: HashtagFilter,
        window: DedupWindow,
        counts: SourceCounts,
        progress: dict[str, StreamProgress],
        *,
        all_deletes: bool = False,
    ) -> None:
        self._identity = identity
        self._parser = parser
        self._hashtags = hashtags
        self._window = window
        self._all_deletes = all_deletes
        self.counts = counts
        self.progress = progress
        self._origins: dict[str, StreamProgress] = {}
        """Where streams without earlier progress began."""

    def process(
        self, batch: OutputBatch, stream: str, frame: StreamFrame, read_ms: TimestampMs
    ) -> None:
        """Adds the records of `frame` to `batch`."""
        progress = self.progress.get(stream)
        if progress is None:
            progress = self.progress[stream] = StreamProgress()
            self._origins[stream] = StreamProgress(read_ms=read_ms)
        if frame.is_settled:
            progress.read_ms = read_ms
        if frame.event == KEEPALIVE:
            return
        self.counts.frames += 1
        try:
            if frame.event == OVERSIZED:
                raise FrameError(f"frame of {frame.size_bytes} bytes is too large")
            parsed = self._parser(frame, read_ms)
        except StreamEnded as end:
            # The server now closes the connection or goes silent; ReconnectingStream handles both.
            batch.stream_ends.append((stream, str(end)))
            return
        except FrameError as error:
            self._reject(batch, frame, str(error), read_ms)
            return
        try:
            admitted = [event for event in parsed.events if self._admit(event)]
            records = [self._record(event, read_ms) for event in admitted]
        except MalformedEvent as error:
            self._reject(batch, frame, str(error), read_ms)
            return
        batch.records += records
        batch.posts += sum(isinstance(event, Post) for event in admitted)
        if parsed.cursor is not None:
            if not progress.cursor and stream in self._origins:
                self._origins[stream].cursor = max(0, parsed.cursor - 1)
            progress.cursor = max(progress.cursor, parsed.cursor)

    def cursor_record(self, stream: str) -> Record:
        """A record that says: everything of `stream` up to here is in the log."""
        return self._cursor_record(stream, self.progress[stream])

    def origin_record(self, stream: str) -> Record:
        """A record with the position before the first frame of `stream`.

        It is written before the first post. Otherwise a source killed while its first batch is in flight
        would restart without a cursor and miss those posts.
        """
        return self._cursor_record(stream, self._origins[stream])

    def _cursor_record(self, stream: str, progress: StreamProgress) -> Record:
        name = self._identity.name
        cursor = SourceCursor(
            network=self._identity.network,
            source=name,
            stream=stream,
            cursor=str(progress.cursor),
            read_ms=progress.read_ms or TimestampMs(0),
        )
        key = cursor_key(name, stream).encode()
        return Record(SOCIAL_CURSORS.name, key, encode(cursor_envelope(cursor)))

    def _admit(self, event: PostEvent) -> bool:
        counts = self.counts
        if isinstance(event, Post) and not self._hashtags.matches(event.tags):
            counts.unmatched += 1
            return False
        match self._window.admit(event):
            case DedupVerdict.DUPLICATE:
                counts.duplicates += 1
                return False
            case DedupVerdict.WITHDRAWN:
                counts.withdrawn += 1
                return False
            case DedupVerdict.FOREIGN:
                counts.foreign += 1
                if not (self._all_deletes and isinstance(event, PostDeleted)):
                    return False
            case DedupVerdict.NEW:
                pass
        match event:
            case Post():
                counts.posts += 1
            case PostEdited():
                counts.edits += 1
            case PostDeleted():
                counts.deletions += 1
        return True

    def _record(self, event: PostEvent, read_ms: TimestampMs) -> Record:
        # The timestamp is ours and not the author's: a made-up date must neither let retention delete the
        # record at once nor keep its segment forever.
        envelope: Envelope[Body] = post_envelope(event, self._identity.name)
        return Record(
            SOCIAL_POSTS.name, post_key(event).encode(), encode(envelope), timestamp_ms=read_ms
        )

    def _reject(
        self, batch: OutputBatch, frame: StreamFrame, reason: str, read_ms: TimestampMs
    ) -> None:
        self.counts.rejected += 1
        batch.rejected += 1
        if batch.rejected > REJECTED_PER_BATCH_MAX:
            return
        rejected = FrameRejected(
            network=self._identity.network,
            source=self._identity.name,
            reason=reason[:RAW_LENGTH_MAX],
            raw=frame.data[:RAW_LENGTH_MAX].decode("utf-8", "replace"),
            size_bytes=frame.size_bytes,
        )
        envelope = rejection_envelope(rejected, self.counts.rejected, read_ms)
        key = self._identity.name.encode()
        batch.records.append(Record(SOCIAL_REJECTED.name, key, encode(envelope)))
