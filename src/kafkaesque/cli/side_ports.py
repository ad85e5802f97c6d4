"""Ports of what a broker offers beside Kafka, by its Kafka port: 9092 has 2181 and 9100, others are
as far from these as their own is from 9092. So several clusters on one machine do not meet."""

from __future__ import annotations

KAFKA_PORT = 9092
SIDE_PORTS = {"coordination-listen": 2181, "text-listen": 9100}
"""By the broker's option."""
_LOWEST, _HIGHEST = 1024, 65535


def side_ports(kafka_port: int) -> dict[str, int]:
    """0, which takes a free one, where there is no such port, and beside a Kafka port that is 0."""
    shift = kafka_port - KAFKA_PORT
    return {
        option: port + shift if kafka_port and _LOWEST <= port + shift <= _HIGHEST else 0
        for option, port in SIDE_PORTS.items()
    }
