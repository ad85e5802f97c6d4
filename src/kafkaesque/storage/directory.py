"""A node's data directory: who owns it, what is where, and how it was left.

    lock                         held while a broker runs; contains its pid
    node                         format version, cluster id, node id, count of starts
    clean                        there only if the last stop closed every log
    journal/                     the controller's log
    topics/<topic id>/<index>/   one partition's log

A topic's directory is its id and never its name, so no name a client invents becomes a path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

import msgspec

from kafkaesque.model.errors import DataDirectoryInUse, InvalidConfig
from kafkaesque.model.ids import PartitionIndex, TopicId
from kafkaesque.storage import durable_state

FORMAT_VERSION: Final = 1


class _NodeState(msgspec.Struct, frozen=True):
    format_version: int
    cluster_id: str
    node_id: int
    starts: int


class DataDirectory:
    """Made by `open`, which takes the lock; `close` gives it back."""

    __slots__ = ("_lock_fd", "_state", "path", "was_clean")

    def __init__(self, path: Path, lock_fd: int, state: _NodeState, was_clean: bool) -> None:
        self.path = path
        self.was_clean = was_clean
        self._lock_fd = lock_fd
        self._state = state

    @classmethod
    def open(cls, path: Path, node_id: int) -> DataDirectory:
        """Own `path`, made if absent. Every start counts, and until `close` it is not clean."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "topics").mkdir(exist_ok=True)
        lock_fd = _take_lock(path)
        try:
            state = _load_state(path, node_id)
            state = msgspec.structs.replace(state, starts=state.starts + 1)
            marker = path / "clean"
            was_clean = marker.exists() or state.starts == 1
            if marker.exists():
                marker.unlink()
            # Saving syncs the directory, and with it the disappearance of the marker.
            durable_state.save(str(path / "node"), msgspec.msgpack.encode(state))
        except BaseException:
            os.close(lock_fd)
            raise
        return cls(path, lock_fd, state, was_clean)

    @property
    def cluster_id(self) -> str:
        return self._state.cluster_id

    @property
    def starts(self) -> int:
        """How often this directory was opened: a number that no earlier run had."""
        return self._state.starts

    @property
    def journal_directory(self) -> Path:
        return self.path / "journal"

    def partition_directory(self, topic_id: TopicId, index: PartitionIndex) -> Path:
        return self._topic_directory(topic_id) / str(index)

    def remove_topic_directory(self, topic_id: TopicId) -> None:
        """What is left of a deleted topic."""
        shutil.rmtree(self._topic_directory(topic_id), ignore_errors=True)

    def _topic_directory(self, topic_id: TopicId) -> Path:
        return self.path / "topics" / str(topic_id)

    def close(self, *, clean: bool) -> None:
        """Give the directory back; `clean` if every log in it was closed cleanly."""
        if clean:
            (self.path / "clean").touch()
            durable_state.sync_directory(str(self.path))
        os.close(self._lock_fd)


def _take_lock(path: Path) -> int:
    lock_fd = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        owner = os.read(lock_fd, 32).decode(errors="replace").strip() or "unknown"
        os.close(lock_fd)
        raise DataDirectoryInUse(
            f"the data directory {path} is in use by process {owner}: stop that broker, or choose "
            "another directory with --data"
        ) from None
    os.ftruncate(lock_fd, 0)
    os.pwrite(lock_fd, f"{os.getpid()}\n".encode(), 0)
    return lock_fd


def _load_state(path: Path, node_id: int) -> _NodeState:
    content = durable_state.load(str(path / "node"))
    if content is None:
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        return _NodeState(FORMAT_VERSION, cluster_id, node_id, 0)
    state = msgspec.msgpack.decode(content, type=_NodeState)
    if state.format_version != FORMAT_VERSION:
        raise InvalidConfig(
            f"{path} has data of format {state.format_version}, this version reads {FORMAT_VERSION}"
        )
    if state.node_id != node_id:
        raise InvalidConfig(
            f"{path} belongs to node {state.node_id}, not {node_id}: choose another --data or "
            f"start with --node-id {state.node_id}"
        )
    return state
