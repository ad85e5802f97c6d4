"""The clients by name."""

from __future__ import annotations

from tests.conformance.clients.aio import AioKafka
from tests.conformance.clients.confluent import Confluent
from tests.conformance.clients.franz_go import FranzGo
from tests.conformance.clients.java import Java39, Java43
from tests.conformance.clients.kafka_python import KafkaPython
from tests.conformance.clients.model import Client
from tests.conformance.clients.node import KafkaJs

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
    """The client `name`; raises `Unavailable`, which names what to install."""
    (kind,) = (kind for kind in _KINDS if kind.name == name)
    return kind(bootstrap)
