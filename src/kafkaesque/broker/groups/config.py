"""Settings of the group rules, checked at construction."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.limits import MIB, OFFSET_METADATA_LENGTH_MAX

_DAY_MS = 24 * 60 * 60 * 1000
_OFFSET_METADATA_CEILING = 32_767 // 4
"""A string in the log has at most 32767 bytes, a character up to 4."""


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """Each description starts with Kafka's name of the setting, if it has one."""

    initial_rebalance_delay_ms: int = 3000
    """`group.initial.rebalance.delay.ms`: how long an empty group waits for more members, so that
    ten consumers started together cause one rebalance and not ten."""

    session_timeout_ms_min: int = 6000
    """`group.min.session.timeout.ms`: a shorter session would need too many heartbeats."""

    session_timeout_ms_max: int = 1_800_000
    """`group.max.session.timeout.ms`: a longer one would leave a dead member's partitions unread."""

    group_size_max: int = 2**31 - 1
    """`group.max.size`: the most members of a group; another one gets GROUP_MAX_SIZE_REACHED."""

    offsets_retention_ms: int = 7 * _DAY_MS
    """`offsets.retention.minutes`, in milliseconds."""

    offset_metadata_length_max: int = OFFSET_METADATA_LENGTH_MAX
    """`offset.metadata.max.bytes`: Kafka compares it with the length in characters, and so do we."""

    new_member_join_timeout_ms: int = 300_000
    """A new member cannot heartbeat while its first join waits; after this long it must rejoin.
    A constant in Kafka (CLASSIC_GROUP_NEW_MEMBER_JOIN_TIMEOUT_MS)."""

    groups_max: int = 100_000
    """The most groups of one registry; a request that would add one gets POLICY_VIOLATION."""

    pending_members_max: int = 10_000
    """The most member ids of one group issued and not yet used (KIP-394): anyone can request them."""

    group_record_bytes_max: int = MIB - 4096
    """The largest group record. It must fit into a batch of the internal topic, because a failed
    append makes the whole registry reload."""

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
