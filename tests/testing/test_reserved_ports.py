"""A reserved port can be used only by its owner."""

from __future__ import annotations

import socket

import pytest

from kafkaesque.testing.reserved_ports import HOST, ReservedPorts


def test_owner_can_listen_on_a_reserved_port_and_no_one_else_gets_it() -> None:
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
