"""Settings of the coordinator's rules, checked when made."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig

_DAY_MS = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Kafka's own name stands first in each sentence where Kafka has one."""

    timeout_ms_max: int = 900_000
    """`transaction.max.timeout.ms`: a longer one would hold back readers for too long."""

    id_expiration_ms: int = 7 * _DAY_MS
    """`transactional.id.expiration.ms`: an id that was not used for so long is forgotten."""

    ids_max: int = 100_000
    """Transactional ids of one coordinator partition; one more gets POLICY_VIOLATION."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be at least 1")
