"""Requests as kazoo writes them, and any bytes at all."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.protocol import serialization as kazoo
from kazoo.security import OPEN_ACL_UNSAFE

from kafkaesque.broker.coordination.rules.acl import OPEN
from kafkaesque.broker.coordination.rules.commands import (
    Check,
    Create,
    Delete,
    Multi,
    SetAcl,
    SetData,
)
from kafkaesque.broker.coordination.rules.jute import JuteReader
from kafkaesque.broker.coordination.rules.requests import (
    MULTI_PARTS_MAX,
    AuthRequest,
    Exists,
    GetAcl,
    GetChildren,
    GetData,
    Request,
    Sync,
    read_connect,
    read_request,
)
from kafkaesque.broker.coordination.rules.vocabulary import OpCode
from kafkaesque.model.errors import ProtocolError

CREATE = kazoo.Create("/a", b"x", OPEN_ACL_UNSAFE, 3)
CASES: list[tuple[Any, Request]] = [
    (CREATE, Create("/a", b"x", OPEN, 3, 1)),
    (kazoo.Create2("/a", b"", OPEN_ACL_UNSAFE, 0), Create("/a", b"", OPEN, 0, 15)),
    (kazoo.Delete("/a", 4), Delete("/a", 4)),
    (kazoo.SetData("/a", b"y", -1), SetData("/a", b"y", -1)),
    (kazoo.SetACL("/a", OPEN_ACL_UNSAFE, 2), SetAcl("/a", OPEN, 2)),
    (kazoo.Exists("/a", True), Exists("/a", True)),
    (kazoo.GetData("/a", None), GetData("/a", False)),
    (kazoo.GetACL("/a"), GetAcl("/a")),
    (kazoo.GetChildren("/a", True), GetChildren("/a", True, False)),
    (kazoo.GetChildren2("/a", None), GetChildren("/a", False, True)),
    (kazoo.Sync("/a"), Sync("/a")),
    (kazoo.Auth(0, "digest", "u:p"), AuthRequest("digest", b"u:p")),
    (
        kazoo.Transaction([CREATE, kazoo.Delete("/b", 1), kazoo.CheckVersion("/c", 2)]),
        Multi((Create("/a", b"x", OPEN, 3, 1), Delete("/b", 1), Check("/c", 2))),
    ),
]


@pytest.mark.parametrize(("theirs", "ours"), CASES, ids=lambda case: type(case).__name__)
def test_request_of_kazoo_is_understood(theirs: Any, ours: Request) -> None:
    reader = JuteReader(bytes(theirs.serialize()))
    assert read_request(OpCode(theirs.type), reader) == ours
    assert reader.remaining_bytes == 0


def test_connect_of_kazoo_is_understood() -> None:
    data = bytes(kazoo.Connect(0, 7, 9000, 1234, b"p" * 16, False).serialize())
    assert read_connect(data) == (0, 7, 9000, 1234, b"p" * 16, True)
    assert read_connect(data[:-1]).has_read_only is False


@given(st.sampled_from(list(OpCode)), st.binary(max_size=80))
def test_any_bytes_are_a_request_or_a_protocol_error(opcode: OpCode, data: bytes) -> None:
    try:
        read_request(opcode, JuteReader(data))
    except ProtocolError:
        return


@given(st.sampled_from(CASES), st.data())
def test_flipped_request_is_a_request_or_a_protocol_error(
    case: tuple[Any, Request], data: st.DataObject
) -> None:
    whole = bytearray(case[0].serialize())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    try:
        read_request(OpCode(case[0].type), JuteReader(bytes(whole)))
    except ProtocolError:
        return


def test_multi_with_too_many_parts_is_refused() -> None:
    part = struct.pack(">i?i", OpCode.CHECK, False, -1) + bytes(4) + bytes(4)
    end = struct.pack(">i?i", -1, True, -1)
    full = read_request(OpCode.MULTI, JuteReader(part * MULTI_PARTS_MAX + end))
    assert isinstance(full, Multi)
    with pytest.raises(ProtocolError):
        read_request(OpCode.MULTI, JuteReader(part * (MULTI_PARTS_MAX + 1) + end))


def test_operations_of_servers_are_not_for_clients() -> None:
    for opcode in (OpCode.NOTIFICATION, OpCode.ERROR, OpCode.DELETE_CONTAINER, OpCode.CHECK):
        assert read_request(opcode, JuteReader(b"")) is None
