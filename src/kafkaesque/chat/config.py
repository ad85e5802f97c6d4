"""The settings of a chat back end, each declared once; read by the command line, passed down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT, STRING = SettingType.INT, SettingType.STRING


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """How a back end reads, decides and writes."""

    batch_records_max: int = setting(
        "batch.records.max", INT, 500,
        "Commands and hand-overs that are decided together, in one transaction.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    poll_wait_ms: int = setting(
        "poll.wait.ms", INT, 250, "How long a read waits when nothing comes; a stop waits as long.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    snapshot_facts: int = setting(
        "snapshot.facts", INT, 5000,
        "Facts after which the changed state of a partition is written: a successor reads about as "
        "many again.",
        at_least=1, ours=True,
    )  # fmt: skip
    zookeeper_connect: str = setting(
        "zookeeper.connect", STRING, "",
        "Where gateways say that they live: users of one that died count as not connected. Empty: what "
        "the gateways wrote last is believed.",
        ours=True,
    )  # fmt: skip
    session_timeout_ms: int = setting(
        "session.timeout.ms", INT, 6000,
        "After so long without a sign of life the group gives this back end's partitions to others.",
        at_least=500,
    )  # fmt: skip
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms", INT, 60_000,
        "After so long the broker itself ends a transaction whose writer died and has no successor.",
        at_least=1000,
    )  # fmt: skip
    group_instance_id: str = setting(
        "group.instance.id", STRING, "",
        "A back end that comes back under the same id within the session timeout takes up its "
        "partitions at once. Empty: others take them, at once after a stop in order.",
    )  # fmt: skip

    def log_properties(self) -> dict[str, str | int]:
        """For the client library. Range keeps equal partitions of all inputs with one member."""
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
    """InvalidConfig names the setting that is unknown or wrong."""
    return typed_settings(BackendConfig, values)
