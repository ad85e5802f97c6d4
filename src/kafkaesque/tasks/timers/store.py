"""The timers of one partition in a SQLite file: state, index by due time and snapshot in one.

The log is the source of truth. The file contains its fold up to `next_offset`; both change in one
transaction, so a crash leaves a consistent fold of a prefix, and a lost file is rebuilt. Memory holds only
SQLite's page cache, however many timers are pending. Calls block; all come from one thread.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from kafkaesque.client.ports import Received
from kafkaesque.events import tasks as protocol
from kafkaesque.events.tasks import CronRule, MalformedTask, TimerMessage
from kafkaesque.model.ids import Offset, TimestampMs
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.timers.cron import check_rule, next_ms

FORMAT = "2"
CACHE_KIB = 8_192
_SCHEMA = """
CREATE TABLE IF NOT EXISTS timers (
    id TEXT PRIMARY KEY, due_ms INTEGER NOT NULL, offset INTEGER NOT NULL, value BLOB NOT NULL,
    task TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS timers_by_due ON timers (due_ms);
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
TASKS_MAX = 200
"""The maximum number of task names that are counted separately."""
OTHER_TASKS = "other/other"


@dataclass(frozen=True, slots=True)
class PendingTimer:
    """A timer that has not fired."""

    id: str
    due_ms: int
    offset: int
    message: TimerMessage
    task: str = OTHER_TASKS
    """QUEUE/NAME of the task that it calls, for metrics."""


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """A record that is not a timer."""

    record: Received
    reason: str


class TimerStore:
    """Create it with `open`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self.cancelled: Counter[str] = Counter()
        """Cancellations by task; those of unknown timers count under `OTHER_TASKS`."""
        self.tasks: Counter[str] = Counter()
        """Pending timers by task."""
        self._unsettled: dict[str, PendingTimer | RefusedRecord] = {}
        """By timer id: timers whose last record in the log is not their state, and refused records."""

    @classmethod
    def open(cls, path: Path | None, topic_id: str, now_ms: int) -> Self:
        """Opens the file at `path` (None: in memory). A file of another topic, or one that is older than
        the retention of tombstones, is emptied."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            return cls._opened(path, topic_id, now_ms)
        except sqlite3.DatabaseError:
            # The file is damaged. It is only a copy, so it is deleted.
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
            if not is_usable or age_ms > protocol.TOMBSTONES_KEPT_MS // 2:
                store._reset(topic_id)
            else:
                store.tasks.update(msgspec.json.decode(facts["tasks"], type=dict[str, int]))
            return store
        except BaseException:
            # The caller gets no store that it could close.
            database.close()
            raise

    def _facts(self) -> dict[str, str]:
        return dict(self._database.execute("SELECT name, value FROM facts").fetchall())

    def _reset(self, topic_id: str) -> None:
        with _transaction(self._database):
            # An older format has other columns.
            self._database.execute("DROP TABLE timers")
            for statement in _SCHEMA.split(";"):
                self._database.execute(statement)
            self._set({"topic": topic_id, "format": FORMAT, "next_offset": "0"})

    def _set(self, facts: dict[str, str]) -> None:
        facts["tasks"] = msgspec.json.encode(dict(self.tasks)).decode()
        self._database.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    @property
    def pending(self) -> int:
        return self.tasks.total()

    @property
    def next_offset(self) -> Offset:
        return Offset(int(self._facts().get("next_offset", "0")))

    def close(self) -> None:
        self._database.close()

    # -- from the log --------------------------------------------------------------------------------

    def apply(self, records: Iterable[Received], next_offset: int, now_ms: int) -> None:
        """Applies records in order and stores the next offset with them."""
        with _transaction(self._database):
            for record in records:
                name = (record.key or b"").decode("utf-8", "replace")
                if name.startswith(protocol.OWNER_KEY):
                    continue
                self._unsettled.pop(name, None)
                try:
                    changed = self._apply_one(name, record, now_ms)
                except (MalformedTask, TaskRefused) as error:
                    self._unsettled[name] = RefusedRecord(record, str(error))
                    continue
                if changed is not None:
                    self._unsettled[name] = changed
            self._set({"next_offset": str(next_offset), "seen_ms": str(now_ms)})

    def take_unsettled(self) -> Sequence[PendingTimer | RefusedRecord]:
        """Timers whose state must be written again, and records that are not timers. Call it when
        everything was read, since a later record may settle an earlier one."""
        taken = list(self._unsettled.values())
        self._unsettled.clear()
        return taken

    def _apply_one(self, name: str, record: Received, now_ms: int) -> PendingTimer | None:
        if record.value is None:
            return self._end(name, record)
        message = protocol.decode_timer(record.value)
        if message.cron is not None:
            check_rule(message.cron)
            return self._apply_cron(
                PendingTimer(name, message.due_ms, record.offset, message), now_ms
            )
        self._put(name, message, record.offset, record.value)
        return None

    def _end(self, name: str, record: Received) -> PendingTimer | None:
        fired = dict(record.headers).get(protocol.FIRED) or b""
        if fired.isdigit():
            now = self._get(name)
            if now is not None and now.offset != int(fired):
                # The timer was set again between its firing and this record: the newer one counts.
                return now
            self._delete(name)
        else:
            self.cancelled[self._delete(name)] += 1
        return None

    def _apply_cron(self, new: PendingTimer, now_ms: int) -> PendingTimer | None:
        rule, old = new.message.cron, self._get(new.id)
        if rule is None:
            return None
        same = old is not None and _same_cron(old.message, new.message)
        if rule.after_ms is not None:
            # Written by an owner. It may be older than the current state.
            if not (same and old is not None and _after(old) > rule.after_ms):
                self._put_timer(new)
            return None
        if same and old is not None:
            return old
        due_ms = TimestampMs(next_ms(rule, now_ms))
        started = CronRule(rule.expression, rule.timezone, rule.misfire, TimestampMs(now_ms))
        message = msgspec.structs.replace(new.message, due_ms=due_ms, cron=started)
        declared = PendingTimer(new.id, due_ms, new.offset, message)
        self._put_timer(declared)
        return declared

    # -- what is due -----------------------------------------------------------------------------------

    def due(self, now_ms: int, count_max: int) -> list[PendingTimer]:
        """The oldest first."""
        rows = self._database.execute(
            "SELECT * FROM timers WHERE due_ms <= ? ORDER BY due_ms LIMIT ?",
            (now_ms, count_max),
        )
        return [_pending(row) for row in rows]

    def fired(self, ended: Iterable[PendingTimer], again: Iterable[PendingTimer]) -> None:
        """The log contains the firing of `ended`; crons in `again` have a new due time."""
        with _transaction(self._database):
            for one in ended:
                now = self._get(one.id)
                if now is not None and now.offset == one.offset:
                    self._delete(one.id)
            for one in again:
                self._put_timer(one)
            self._set({})

    def next_due_ms(self) -> int | None:
        row = self._database.execute("SELECT min(due_ms) FROM timers").fetchone()
        return None if row is None or row[0] is None else int(row[0])

    def _get(self, name: str) -> PendingTimer | None:
        row = self._database.execute("SELECT * FROM timers WHERE id = ?", (name,)).fetchone()
        return None if row is None else _pending(row)

    def _put_timer(self, timer: PendingTimer) -> None:
        message = timer.message
        self._put(timer.id, message, timer.offset, protocol.encode_message(message))

    def _put(self, name: str, message: TimerMessage, offset: int, value: bytes) -> None:
        self._delete(name)
        task = _task_of(message)
        if task not in self.tasks and len(self.tasks) >= TASKS_MAX:
            task = OTHER_TASKS
        self._database.execute(
            "INSERT INTO timers VALUES (?, ?, ?, ?, ?)",
            (name, message.due_ms, offset, value, task),
        )
        self.tasks[task] += 1

    def _delete(self, name: str) -> str:
        """Returns the task of the deleted timer."""
        gone = self._database.execute("DELETE FROM timers WHERE id = ? RETURNING task", (name,))
        for (task,) in gone.fetchall():
            self.tasks[task] -= 1
            return str(task)
        return OTHER_TASKS


def _task_of(timer: TimerMessage) -> str:
    try:
        return f"{protocol.queue_of(timer.topic)}/{protocol.decode_task(bytes(timer.message)).task}"
    except (MalformedTask, IndexError):
        # It fires all the same; the worker that reads the call makes it a dead letter.
        return OTHER_TASKS


def _pending(row: tuple[str, int, int, bytes, str]) -> PendingTimer:
    return PendingTimer(row[0], row[1], row[2], protocol.decode_timer(row[3]), row[4])


def _after(timer: PendingTimer) -> int:
    rule = timer.message.cron
    return -1 if rule is None or rule.after_ms is None else rule.after_ms


def _same_cron(old: TimerMessage, new: TimerMessage) -> bool:
    """Whether two declarations are equal; ids and times of the calls do not matter."""
    if old.cron is None or new.cron is None:
        return False
    ours, theirs = (
        protocol.decode_task(bytes(old.message)),
        protocol.decode_task(bytes(new.message)),
    )
    rules = [(rule.expression, rule.timezone, rule.misfire) for rule in (old.cron, new.cron)]
    calls = [(one.task, bytes(one.args), one.version) for one in (ours, theirs)]
    targets = [(one.topic, one.key) for one in (old, new)]
    return rules[0] == rules[1] and calls[0] == calls[1] and targets[0] == targets[1]


class _transaction:
    """A SQLite transaction; an exception rolls it back."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._database.execute("COMMIT" if kind is None else "ROLLBACK")
