"""A port that is held is its owner's alone."""

from __future__ import annotations

import socket

import pytest

from kafkaesque.testing.reserved_ports import HOST, ReservedPorts


def test_reserved_port_can_be_listened_on_and_is_no_stranger_s() -> None:
    ports = ReservedPorts(1)
    assert ports.take(2) == ports.numbers[1:]
    assert len(set(ports.numbers)) == 3
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, ports.numbers[0]))
        listener.listen()
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind((HOST, ports.numbers[0]))
    with socket.socket() as client, pytest.raises(ConnectionRefusedError):
        client.connect((HOST, ports.numbers[0]))
    ports.close()
