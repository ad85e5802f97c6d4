"""Names and places in a node's data directory, its lock, and how the node last stopped.

    <data>/lock                                   held while a process uses the directory
    <data>/meta                                   format, cluster, node
    <data>/clean-shutdown                         there only after a clean stop
    <data>/starts                                 how often a node was started on it
    <data>/journal/                               the controller's log
    <data>/raft/                                  votes, terms and such of all Raft groups
    <data>/topics/<topic id>/<partition>/         one log

Directories are named by topic id: a topic's name is a stranger's text and never becomes a path.
What is in a log's directory is the log's own affair.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.open_files import REAL_CALLS
from kafkaesque.model.errors import DataDirectoryInUse, check
from kafkaesque.model.ids import NodeId, PartitionIndex, TopicId

FORMAT_VERSION: Final = 2
_LOCK_NAME: Final = "lock"
_META_NAME: Final = "meta"
_CLEAN_NAME: Final = "clean-shutdown"
_STARTS_NAME: Final = "starts"
_JOURNAL_NAME: Final = "journal"
_RAFT_NAME: Final = "raft"
_TOPICS_NAME: Final = "topics"


class DataDirectoryInvalid(Exception):
    """The directory is not one that this node can use; the text says what to do."""


class Meta(msgspec.Struct, frozen=True):
    """Whose directory this is. Written once."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID
    """Names this disk: a node that comes with another one has forgotten what it promised."""
    generation: int
    """How many disks the node had before this one, as the cluster counts."""
    format_version: int = FORMAT_VERSION


_decode_meta = msgspec.json.Decoder(Meta).decode


class DataDirectory:
    """The directory of one node, locked until `close`."""

    def __init__(self, path: Path | str) -> None:
        """Make the directory if needed and lock it; DataDirectoryInUse if a process has it."""
        self.path = Path(path)
        self._topics = self.path / _TOPICS_NAME
        self._topics.mkdir(parents=True, exist_ok=True)
        self._lock_fd = _lock(self.path / _LOCK_NAME)
        try:
            self._was_clean = self._consume_clean_marker()
            self._meta = self._load_meta()
        except BaseException:
            # Nobody gets this object, so nobody else would give the lock back; the error goes on.
            self.close()
            raise

    @property
    def meta(self) -> Meta | None:
        """None until `set_meta` was called once."""
        return self._meta

    def set_meta(self, meta: Meta) -> None:
        """Say whose directory this is. It cannot be given to another node or cluster."""
        if self._meta is not None and self._meta != meta:
            raise DataDirectoryInvalid(
                f"{self.path} belongs to node {self._meta.node_id} of cluster "
                f"{self._meta.cluster_id}, not to node {meta.node_id} of cluster "
                f"{meta.cluster_id}; use another directory or that node's id"
            )
        if self._meta is None:
            durable_state.save(str(self.path / _META_NAME), msgspec.json.encode(meta))
            self._meta = meta

    def was_clean(self) -> bool:
        """Whether the last process closed everything. True once, for this process only."""
        return self._was_clean

    def mark_clean(self) -> None:
        """Say that all logs are closed. The last act before `close`."""
        check(self._lock_fd >= 0, "the data directory is still locked")
        durable_state.save(str(self.path / _CLEAN_NAME), b"")

    def count_start(self) -> int:
        """A number that no earlier start on this directory was given: 0, 1, 2, ... Durable."""
        path = str(self.path / _STARTS_NAME)
        try:
            content = durable_state.load(path)
        except durable_state.StateDamaged as error:
            raise DataDirectoryInvalid(f"{path} cannot be read: {error}") from error
        number = 0 if content is None else int(content)
        durable_state.save(path, str(number + 1).encode())
        return number

    @property
    def journal_path(self) -> Path:
        return self.path / _JOURNAL_NAME

    @property
    def raft_path(self) -> Path:
        return self.path / _RAFT_NAME

    def log_path(self, topic_id: TopicId, partition: PartitionIndex) -> Path:
        """Where the log of a partition is, or will be."""
        return self.topic_path(topic_id) / str(partition)

    def topic_path(self, topic_id: TopicId) -> Path:
        return self._topics / str(topic_id)

    def topic_ids(self) -> list[TopicId]:
        """The topics that have a directory; whatever else lies there is not ours."""
        found = []
        for name in sorted(os.listdir(self._topics)):
            with contextlib.suppress(ValueError):
                topic_id = TopicId(UUID(name))
                if str(topic_id) == name:
                    found.append(topic_id)
        return found

    def partitions(self, topic_id: TopicId) -> list[PartitionIndex]:
        """The partitions of a topic that have a directory, ascending."""
        try:
            names = os.listdir(self.topic_path(topic_id))
        except FileNotFoundError:
            return []
        return sorted(PartitionIndex(int(name)) for name in names if name.isdecimal())

    def delete_topic(self, topic_id: TopicId) -> None:
        """Remove the directory of a topic whose logs are closed."""
        shutil.rmtree(self.topic_path(topic_id), ignore_errors=True)

    def close(self) -> None:
        """Unlock the directory."""
        if self._lock_fd >= 0:
            # Explicitly: a forked child that still has the descriptor would keep the lock.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _consume_clean_marker(self) -> bool:
        """Durably, so that a power cut during this run does not find it again."""
        marker = self.path / _CLEAN_NAME
        try:
            os.unlink(marker)
        except FileNotFoundError:
            return False
        REAL_CALLS.sync_directory(str(self.path))
        return True

    def _load_meta(self) -> Meta | None:
        path = self.path / _META_NAME
        try:
            content = durable_state.load(str(path))
            meta = None if content is None else _decode_meta(content)
        except (durable_state.StateDamaged, msgspec.MsgspecError) as error:
            raise DataDirectoryInvalid(f"{path} cannot be read: {error}") from error
        if meta is not None and meta.format_version != FORMAT_VERSION:
            raise DataDirectoryInvalid(
                f"{self.path} has format {meta.format_version}, this version reads "
                f"{FORMAT_VERSION}; use the version that wrote it"
            )
        return meta


def _lock(path: Path) -> int:
    """Lock the file for this process and write its pid into it.

    The kernel drops the lock when the process ends, however it ends; the file itself stays.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.pread(fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise DataDirectoryInUse(
            f"{path.parent} is in use by process {pid}: stop that process, "
            "or give this one another data directory"
        ) from None
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd
