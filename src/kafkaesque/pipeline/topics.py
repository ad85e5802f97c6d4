"""The topics that queries read and write, as they are made where they are not there yet.

On a fresh machine the pipeline may start before the service whose topic it reads: the topic is then
made as that service declares it (`events/`), never in another shape.
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
    doc="Every change of a hashtag's count in a window; the newest record of a key counts.",
    configs={"cleanup.policy": "compact,delete", "retention.ms": str(24 * 3_600_000)},
)
ALERTS: Final = TopicSpec(
    name="pipeline.alerts",
    partitions=1,
    key="REPORT",
    doc="What a report of the pipeline found that somebody must look at.",
    configs={"retention.ms": str(7 * 24 * 3_600_000)},
)
_TIMEOUT_S: Final = 30.0


def declared(names: Iterable[str]) -> list[TopicSpec]:
    """Those of `names` that the pipeline or a service declares."""
    known = {spec.name: spec for spec in (TRENDS, ALERTS, *_of_services())}
    return [known[name] for name in dict.fromkeys(names) if name in known]


def _of_services() -> Iterable[TopicSpec]:
    for found in pkgutil.iter_modules(events.__path__):
        module = importlib.import_module(f"{events.__name__}.{found.name}")
        yield from (value for value in vars(module).values() if isinstance(value, TopicSpec))


def ensure_topics(kafka: Mapping[str, str], specs: Iterable[TopicSpec]) -> list[str]:
    """Make those that are missing; the names of those made. One that is there stays as it is."""
    wanted = [NewTopic(spec.name, spec.partitions, config=dict(spec.configs)) for spec in specs]
    if not wanted:
        return []
    admin = AdminClient({**kafka, "log_level": 0})
    made = []
    for name, future in admin.create_topics(wanted, operation_timeout=_TIMEOUT_S).items():
        try:
            future.result(_TIMEOUT_S)
            made.append(name)
        except KafkaException as error:
            inner = error.args[0]
            exists = KafkaError.TOPIC_ALREADY_EXISTS
            if not isinstance(inner, KafkaError) or inner.code() != exists:
                raise KafkaRefused(f"topic '{name}' cannot be made: {error}") from error
    return made
