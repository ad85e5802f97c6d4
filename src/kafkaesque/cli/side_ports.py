"""Ports beside Kafka's, by the Kafka port: 9092 has 2181 and 9100, others are as far from these as
their own is from 9092. So several clusters on one machine do not meet."""

from __future__ import annotations

KAFKA_PORT = 9092
SIDE_PORTS = {"coordination-listen": 2181, "text-listen": 9100}
"""By the broker's option."""
_LOWEST, _HIGHEST = 1024, 65535


def shifted(default_port: int, kafka_port: int) -> int:
    """0, which takes a free one, where there is no such port, and beside a Kafka port that is 0."""
    port = default_port + kafka_port - KAFKA_PORT
    return port if kafka_port and _LOWEST <= port <= _HIGHEST else 0


def side_ports(kafka_port: int) -> dict[str, int]:
    return {option: shifted(port, kafka_port) for option, port in SIDE_PORTS.items()}
