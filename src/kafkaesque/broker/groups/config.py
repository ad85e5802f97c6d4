"""Settings of the group rules, checked when made. Reading them from anywhere happens elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.limits import MIB, OFFSET_METADATA_LENGTH_MAX

_DAY_MS = 24 * 60 * 60 * 1000
_OFFSET_METADATA_CEILING = 32_767 // 4
"""A string of the log has at most 32767 bytes, a character up to 4."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Kafka's own name stands first in each sentence where Kafka has one."""

    initial_rebalance_delay_ms: int = 3000
    """`group.initial.rebalance.delay.ms`: an empty group waits so long for more members, so that
    ten consumers started together cost one rebalance and not ten."""

    session_timeout_ms_min: int = 6000
    """`group.min.session.timeout.ms`: a shorter session asks for more heartbeats than it is worth."""

    session_timeout_ms_max: int = 1_800_000
    """`group.max.session.timeout.ms`: a longer one would keep a dead member's partitions unread."""

    group_size_max: int = 2**31 - 1
    """`group.max.size`: members of one group; one more gets GROUP_MAX_SIZE_REACHED."""

    offsets_retention_ms: int = 7 * _DAY_MS
    """`offsets.retention.minutes`, in milliseconds."""

    offset_metadata_length_max: int = OFFSET_METADATA_LENGTH_MAX
    """`offset.metadata.max.bytes`: Kafka compares it with the length in characters, and so do we."""

    new_member_join_timeout_ms: int = 300_000
    """A new member cannot heartbeat while its first join waits; after so long it must ask again.
    A constant in Kafka (CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)."""

    groups_max: int = 100_000
    """Groups of one registry; a request that would create one more gets POLICY_VIOLATION."""

    pending_members_max: int = 10_000
    """Member ids of one group handed out and not yet used (KIP-394): anyone can ask for them."""

    group_record_bytes_max: int = MIB - 4096
    """Largest group record. It must fit a batch of the internal topic, because an append that
    fails costs the whole registry a reload."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 0:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must not be negative")
        if self.session_timeout_ms_min > self.session_timeout_ms_max:
            raise InvalidConfig(
                f"group.min.session.timeout.ms {self.session_timeout_ms_min} is above "
                f"group.max.session.timeout.ms {self.session_timeout_ms_max}"
            )
        if self.group_size_max < 1 or self.groups_max < 1:
            raise InvalidConfig("group.max.size and groups_max must be at least 1")
        if self.offset_metadata_length_max > _OFFSET_METADATA_CEILING:
            raise InvalidConfig(
                f"offset.metadata.max.bytes is {self.offset_metadata_length_max}; "
                f"a record of the log has room for {_OFFSET_METADATA_CEILING} characters"
            )
