"""The timers of one partition in a SQLite file: state, index by due time, and snapshot in one.

The log is the truth. The file holds its fold up to `next_offset`, changed in one transaction with it,
so that a crash at any moment leaves a consistent fold of a prefix, and a lost file is rebuilt. What is
in memory is SQLite's page cache, however many timers are pending. Blocking calls, one thread.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as words
from kafkaesque.events.tasks import CronRule, MalformedTask, TimerMessage
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.timers.cron import check_rule, next_ms

FORMAT = "1"
CACHE_KIB = 8_192
_SCHEMA = """
CREATE TABLE IF NOT EXISTS timers (
    id TEXT PRIMARY KEY, due_ms INTEGER NOT NULL, offset INTEGER NOT NULL, value BLOB NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS timers_by_due ON timers (due_ms);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Pending:
    """A timer that waits."""

    id: str
    due_ms: int
    offset: int
    message: TimerMessage


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is no timer."""

    record: Received
    reason: str


class TimerStore:
    """Made by `open`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.cancelled = 0
        self.pending = 0
        self._unsettled: dict[str, Pending | Refused] = {}
        """By id: where the last record in the log is not what counts."""

    @classmethod
    def open(cls, path: Path | None, topic_id: str, now_ms: int) -> Self:
        """The file at `path` if it is of use: of this topic, and read from within the time that
        tombstones are kept. Otherwise begin anew. None: in memory."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return cls._opened(path, topic_id, now_ms)
        except sqlite3.DatabaseError:
            # Damaged: it is a copy, so it is thrown away.
            if path is None:
                raise
            for suffix in ("", "-wal", "-shm"):
                path.with_name(path.name + suffix).unlink(missing_ok=True)
            return cls._opened(path, topic_id, now_ms)

    @classmethod
    def _opened(cls, path: Path | None, topic_id: str, now_ms: int) -> Self:
        database = sqlite3.connect(
            path or ":memory:", isolation_level=None, check_same_thread=False
        )
        try:
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            database.executescript(_SCHEMA)
            store = cls(database)
            facts = store._facts()
            age_ms = abs(now_ms - int(facts.get("seen_ms", "0")))
            is_usable = facts.get("topic") == topic_id and facts.get("format") == FORMAT
            if not is_usable or age_ms > words.TOMBSTONES_KEPT_MS // 2:
                store._begin_anew(topic_id)
            store.pending = int(database.execute("SELECT count(*) FROM timers").fetchone()[0])
            return store
        except BaseException:
            # Whatever it was goes on to the caller, who has no store to close.
            database.close()
            raise

    def _facts(self) -> dict[str, str]:
        return dict(self._database.execute("SELECT name, value FROM facts").fetchall())

    def _begin_anew(self, topic_id: str) -> None:
        with _transaction(self._database):
            self._database.execute("DELETE FROM timers")
            self._set({"topic": topic_id, "format": FORMAT, "next_offset": "0"})

    def _set(self, facts: dict[str, str]) -> None:
        self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    @property
    def next_offset(self) -> Offset:
        return Offset(int(self._facts().get("next_offset", "0")))

    def close(self) -> None:
        self._database.close()

    # -- from the log --------------------------------------------------------------------------------

    def apply(self, records: Iterable[Received], next_offset: int, now_ms: int) -> None:
        """Fold records, in their order, and remember how far that is."""
        with _transaction(self._database):
            for record in records:
                name = (record.key or b"").decode("utf-8", "replace")
                if name.startswith(words.OWNER_KEY):
                    continue
                self._unsettled.pop(name, None)
                try:
                    changed = self._apply_one(name, record, now_ms)
                except (MalformedTask, TaskRefused) as error:
                    self._unsettled[name] = Refused(record, str(error))
                    continue
                if changed is not None:
                    self._unsettled[name] = changed
            self._set({"next_offset": str(next_offset), "seen_ms": str(now_ms)})

    def take_unsettled(self) -> Sequence[Pending | Refused]:
        """Timers whose last record must be written again, and records that are no timers. Only
        what no later record has settled: to be asked when all is read."""
        taken = list(self._unsettled.values())
        self._unsettled.clear()
        return taken

    def _apply_one(self, name: str, record: Received, now_ms: int) -> Pending | None:
        if record.value is None:
            return self._end(name, record)
        message = words.decode_timer(record.value)
        if message.cron is not None:
            check_rule(message.cron)
            return self._apply_cron(Pending(name, message.due_ms, record.offset, message), now_ms)
        self._put(name, message.due_ms, record.offset, record.value)
        return None

    def _end(self, name: str, record: Received) -> Pending | None:
        fired = dict(record.headers).get(words.FIRED) or b""
        if fired.isdigit():
            now = self._get(name)
            if now is not None and now.offset != int(fired):
                # Set anew between firing and the record of it: it is the newer one that counts.
                return now
        else:
            self.cancelled += 1
        self._delete(name)
        return None

    def _apply_cron(self, new: Pending, now_ms: int) -> Pending | None:
        rule, old = new.message.cron, self._get(new.id)
        if rule is None:
            return None
        same = old is not None and _same_cron(old.message, new.message)
        if rule.after_ms is not None:
            # Our own, read back. It may be older than what we have done since.
            if not (same and old is not None and _after(old) > rule.after_ms):
                self._put_timer(new)
            return None
        if same and old is not None:
            return old
        due_ms = TimestampMs(next_ms(rule, now_ms))
        begun = CronRule(rule.expression, rule.timezone, rule.misfire, TimestampMs(now_ms))
        message = msgspec.structs.replace(new.message, due_ms=due_ms, cron=begun)
        declared = Pending(new.id, due_ms, new.offset, message)
        self._put_timer(declared)
        return declared

    # -- what is due -----------------------------------------------------------------------------------

    def due(self, now_ms: int, count_max: int) -> list[Pending]:
        """The oldest first."""
        rows = self._database.execute(
            "SELECT id, due_ms, offset, value FROM timers WHERE due_ms <= ? ORDER BY due_ms LIMIT ?",
            (now_ms, count_max),
        )
        return [_pending(row) for row in rows]

    def fired(self, ended: Iterable[Pending], again: Iterable[Pending]) -> None:
        """It is in the log that these have fired; those of `again` have a new time."""
        with _transaction(self._database):
            for one in ended:
                gone = self._database.execute(
                    "DELETE FROM timers WHERE id = ? AND offset = ?", (one.id, one.offset)
                )
                self.pending -= gone.rowcount
            for one in again:
                self._put_timer(one)

    def next_due_ms(self) -> int | None:
        row = self._database.execute("SELECT min(due_ms) FROM timers").fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _get(self, name: str) -> Pending | None:
        row = self._database.execute(
            "SELECT id, due_ms, offset, value FROM timers WHERE id = ?", (name,)
        ).fetchone()
        return None if row is None else _pending(row)

    def _put_timer(self, timer: Pending) -> None:
        self._put(timer.id, timer.due_ms, timer.offset, words.encode_message(timer.message))

    def _put(self, name: str, due_ms: int, offset: int, value: bytes) -> None:
        self._delete(name)
        self._database.execute(
            "INSERT INTO timers VALUES (?, ?, ?, ?)", (name, due_ms, offset, value)
        )
        self.pending += 1

    def _delete(self, name: str) -> None:
        gone = self._database.execute("DELETE FROM timers WHERE id = ?", (name,))
        self.pending -= gone.rowcount


def _pending(row: tuple[str, int, int, bytes]) -> Pending:
    return Pending(row[0], row[1], row[2], words.decode_timer(row[3]))


def _after(timer: Pending) -> int:
    rule = timer.message.cron
    return -1 if rule is None or rule.after_ms is None else rule.after_ms


def _same_cron(old: TimerMessage, new: TimerMessage) -> bool:
    """Whether a declaration says what is known already; its own id and time say nothing."""
    if old.cron is None or new.cron is None:
        return False
    ours, theirs = words.decode_task(bytes(old.message)), words.decode_task(bytes(new.message))
    rules = [(rule.expression, rule.timezone, rule.misfire) for rule in (old.cron, new.cron)]
    calls = [(one.task, bytes(one.args), one.version) for one in (ours, theirs)]
    targets = [(one.topic, one.key) for one in (old, new)]
    return rules[0] == rules[1] and calls[0] == calls[1] and targets[0] == targets[1]


class _transaction:
    """BEGIN to COMMIT; whatever is raised inside rolls back."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
