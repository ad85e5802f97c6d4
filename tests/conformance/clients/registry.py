"""Which clients there are, by the names that the tests print."""

from __future__ import annotations

from .aio import AioKafka
from .confluent import Confluent
from .franz_go import FranzGo
from .java import Java39, Java43
from .kafka_python import KafkaPython
from .model import Client
from .node import KafkaJs

_KINDS: tuple[type[Client], ...] = (
    Confluent,
    KafkaPython,
    AioKafka,
    Java43,
    Java39,
    FranzGo,
    KafkaJs,
)
CLIENTS = tuple(kind.name for kind in _KINDS)


def open_client(name: str, bootstrap: str) -> Client:
    """The client `name`, or `Unavailable` with what to install."""
    (kind,) = (kind for kind in _KINDS if kind.name == name)
    return kind(bootstrap)
