"""Creates the topics that queries read and write, if they do not exist.

On a new machine the pipeline may start before the service whose topic it reads. The topic is then
created as that service declares it in `events/`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kafkaesque import events
from kafkaesque.events.topics import TopicSpec
from kafkaesque.pipeline.errors import KafkaRefused

TRENDS: Final = TopicSpec(
    name="trends",
    partitions=1,
    key="WINDOW START/HASHTAG",
    doc="Every change of a hashtag's count in a window; the newest record of a key is valid.",
    configs={"cleanup.policy": "compact,delete", "retention.ms": str(24 * 3_600_000)},
)
ALERTS: Final = TopicSpec(
    name="pipeline.alerts",
    partitions=1,
    key="REPORT",
    doc="Alerts from the pipeline's reports.",
    configs={"retention.ms": str(7 * 24 * 3_600_000)},
)
_TIMEOUT_S: Final = 30.0


def declared(names: Iterable[str]) -> list[TopicSpec]:
    """The specs of those `names` that the pipeline or a service declares."""
    known = {spec.name: spec for spec in (TRENDS, ALERTS, *_service_topics())}
    return [known[name] for name in dict.fromkeys(names) if name in known]


def _service_topics() -> Iterable[TopicSpec]:
    for found in pkgutil.iter_modules(events.__path__):
        module = importlib.import_module(f"{events.__name__}.{found.name}")
        yield from (value for value in vars(module).values() if isinstance(value, TopicSpec))


def ensure_topics(kafka: Mapping[str, str], specs: Iterable[TopicSpec]) -> list[str]:
    """Creates missing topics and returns their names. Existing topics are not changed."""
    wanted = [NewTopic(spec.name, spec.partitions, config=dict(spec.configs)) for spec in specs]
    if not wanted:
        return []
    admin = AdminClient({**kafka, "log_level": 0})
    created = []
    for name, future in admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result(_TIMEOUT_S)
            created.append(name)
        except KafkaException as error:
            inner = error.args[0]
            exists = KafkaError.TOPIC_ALREADY_EXISTS
            if not isinstance(inner, KafkaError) or inner.code() != exists:
                raise KafkaRefused(f"cannot create topic '{name}': {error}") from error
    return created
