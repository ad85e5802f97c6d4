"""The layout of a node's data directory, its lock, and the marker of a clean shutdown.

    <data>/lock                                   held while a process uses the directory
    <data>/meta                                   format, cluster, node
    <data>/clean-shutdown                         exists only after a clean shutdown
    <data>/starts                                 how many times a node was started on it
    <data>/journal/                               the controller's log
    <data>/raft/                                  terms, votes and control entries of all Raft groups
    <data>/topics/<topic id>/<partition>/         one log

Directories are named by topic id: a topic's name comes from a client and never becomes a path.
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
_CONTROLLER_LOG_NAME: Final = "journal"
_RAFT_NAME: Final = "raft"
_TOPICS_NAME: Final = "topics"


class DataDirectoryInvalid(Exception):
    """This node cannot use the directory; the message says what to do."""


class Meta(msgspec.Struct, frozen=True):
    """The node and cluster that own the directory. Written once."""

    cluster_id: str
    node_id: NodeId
    directory_id: UUID
    """Identifies this disk: a node with another disk has lost its Raft votes and promises."""
    generation: int
    """How many disks the node had before this one, as counted by the cluster."""
    format_version: int = FORMAT_VERSION


_decode_meta = msgspec.json.Decoder(Meta).decode


class DataDirectory:
    """The directory of one node, locked until `close`."""

    def __init__(self, path: Path | str) -> None:
        """Creates the directory if needed and locks it. Raises DataDirectoryInUse."""
        self.path = Path(path)
        self._topics = self.path / _TOPICS_NAME
        self._topics.mkdir(parents=True, exist_ok=True)
        self._lock_fd = _lock(self.path / _LOCK_NAME)
        try:
            self._was_clean = self._consume_clean_marker()
            self._meta = self._load_meta()
        except BaseException:
            # The caller never gets this object, so the lock has to be released here.
            self.close()
            raise

    @property
    def meta(self) -> Meta | None:
        """None until the first `set_meta`."""
        return self._meta

    def set_meta(self, meta: Meta) -> None:
        """Records the owner of the directory. It cannot change to another node or cluster."""
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
        """Whether the last process shut down cleanly. The marker is consumed on start."""
        return self._was_clean

    def mark_clean(self) -> None:
        """Records that all logs are closed. Must be the last call before `close`."""
        check(self._lock_fd >= 0, "the data directory is still locked")
        durable_state.save(str(self.path / _CLEAN_NAME), b"")

    def count_start(self) -> int:
        """Returns a number unique to this start of the node: 0, 1, 2, ... Durable."""
        path = str(self.path / _STARTS_NAME)
        try:
            content = durable_state.load(path)
        except durable_state.StateDamaged as error:
            raise DataDirectoryInvalid(f"{path} cannot be read: {error}") from error
        number = 0 if content is None else int(content)
        durable_state.save(path, str(number + 1).encode())
        return number

    @property
    def controller_log_path(self) -> Path:
        return self.path / _CONTROLLER_LOG_NAME

    @property
    def raft_path(self) -> Path:
        return self.path / _RAFT_NAME

    def log_path(self, topic_id: TopicId, partition: PartitionIndex) -> Path:
        """The directory of a partition's log, which may not exist yet."""
        return self.topic_path(topic_id) / str(partition)

    def topic_path(self, topic_id: TopicId) -> Path:
        return self._topics / str(topic_id)

    def topic_ids(self) -> list[TopicId]:
        """The topics that have a directory. Ignores any other names."""
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
        """Deletes the directory of a topic whose logs are closed."""
        shutil.rmtree(self.topic_path(topic_id), ignore_errors=True)

    def close(self) -> None:
        """Unlocks the directory."""
        if self._lock_fd >= 0:
            # An explicit unlock: a forked child that still has the descriptor would keep the lock.
            fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _consume_clean_marker(self) -> bool:
        """Deletes the marker durably, so that it does not reappear after a power cut."""
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
    """Locks the file for this process and writes its pid into it.

    The kernel releases the lock when the process ends, however it ends; the file stays.
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
