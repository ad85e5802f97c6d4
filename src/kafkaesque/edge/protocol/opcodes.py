"""The opcodes: what a frame is about. Numbers are for ever; see docs/GATEWAY.md for who says what when."""

from __future__ import annotations

from enum import IntEnum

PROTOCOL_VERSION = 1
"""First byte of every TCP frame, and part of the WebSocket subprotocol's name."""


class Opcode(IntEnum):
    """Below 64: said by clients. From 64 on: said by gateways."""

    HELLO = 1
    AUTH = 2
    RESUME = 3
    PING = 4
    SEND = 5
    ASK = 6
    SUB = 7
    UNSUB = 8
    CREDIT = 9
    LOGOUT = 10

    WELCOME = 64
    RESUMED = 65
    INVALID_SESSION = 66
    PONG = 67
    ACK = 68
    ANSWER = 69
    EVENT = 70
    GOAWAY = 71
    ERROR = 72
    BYE = 73


def said_by_clients(opcode: Opcode) -> bool:
    return opcode < Opcode.WELCOME
