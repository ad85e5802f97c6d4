"""The settings of a chat back end. The command line reads them and passes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT, STRING = SettingType.INT, SettingType.STRING


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """Settings of a back end."""

    batch_records_max: int = setting(
        "batch.records.max", INT, 500,
        "Maximum number of commands and hand-overs processed in one transaction.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    poll_wait_ms: int = setting(
        "poll.wait.ms", INT, 250, "How long a read waits for records; a stop may take as long.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    snapshot_facts: int = setting(
        "snapshot.facts", INT, 5000,
        "Number of facts after which a partition writes a snapshot of what changed. A successor replays "
        "about as many.",
        at_least=1, ours=True,
    )  # fmt: skip
    zookeeper_connect: str = setting(
        "zookeeper.connect", STRING, "",
        "ZooKeeper in which gateways register: users of a dead gateway count as offline. Empty: the "
        "gateways' last presence records are trusted.",
        ours=True,
    )  # fmt: skip
    session_timeout_ms: int = setting(
        "session.timeout.ms", INT, 6000,
        "Without heartbeats for this long, the group assigns this back end's partitions to others.",
        at_least=500,
    )  # fmt: skip
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms", INT, 60_000,
        "After this long the broker aborts an open transaction whose writer died without a successor.",
        at_least=1000,
    )  # fmt: skip
    group_instance_id: str = setting(
        "group.instance.id", STRING, "",
        "Static membership: a back end that restarts with the same id within the session timeout gets "
        "its partitions back at once. Empty: others take them, immediately after a clean stop.",
    )  # fmt: skip

    def log_properties(self) -> dict[str, str | int]:
        """Properties of the Kafka client. The range assignor gives one member the same partition of all
        inputs."""
        properties: dict[str, str | int] = {
            "partition.assignment.strategy": "range",
            "session.timeout.ms": self.session_timeout_ms,
            "heartbeat.interval.ms": max(100, self.session_timeout_ms // 6),
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "fetch.wait.max.ms": 250,
            "reconnect.backoff.max.ms": 1000,
        }
        if self.group_instance_id:
            properties["group.instance.id"] = self.group_instance_id
        return properties


BACKEND_SETTINGS: Mapping[str, Setting] = settings_of(BackendConfig)


def backend_config(values: Mapping[str, str]) -> BackendConfig:
    """Raises InvalidConfig, which names an unknown or invalid setting."""
    return typed_settings(BackendConfig, values)
