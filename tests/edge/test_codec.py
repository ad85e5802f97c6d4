from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.edge.protocol import messages
from kafkaesque.edge.protocol.codec import (
    Encoding,
    body_from_json,
    body_to_json,
    decode_pair,
    decode_payload,
    encode_pair,
    encode_payload,
    sniff_encoding,
)
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.messages import MESSAGES, OPCODES, Opcode

BOTH = pytest.mark.parametrize("encoding", list(Encoding))
SAID = [
    messages.Hello("v2", "test", 5),
    messages.Auth(name="alice", password="secret", register=True),
    messages.Resume("mI1V1fD9SzuR7hSv9Fdqqw.17.1"),
    messages.Ping(7),
    messages.Welcome("alice", "s", "gw-1", 25_000, 5, None, ("a:1",), 65536),
    messages.Resumed(3, "p"),
    messages.InvalidSession("gone", snapshot=True, live="p"),
    messages.Error("busy", retry=True, id="c1"),
    messages.GoAway(250, ("a:1", "b:2")),
    messages.Bye(4000, reconnect=True),
]


@BOTH
@pytest.mark.parametrize("message", SAID, ids=lambda message: type(message).__name__)
def test_messages_round_trip_in_both_encodings(
    encoding: Encoding, message: messages.Message
) -> None:
    payload = encode_payload(message, encoding)
    assert decode_payload(OPCODES[type(message)], payload, encoding) == message
    assert decode_pair(encode_pair(message, encoding), encoding) == message


@BOTH
def test_body_passes_through_unchanged(encoding: Encoding) -> None:
    encode = msgspec.json.encode if encoding is Encoding.JSON else msgspec.msgpack.encode
    said = messages.Send("c1", "op", msgspec.Raw(encode({"to": "bob", "n": [1, None]})))
    heard = decode_pair(encode_pair(said, encoding), encoding)
    assert isinstance(heard, messages.Send)
    in_log = body_to_json(heard.body, encoding)
    assert msgspec.json.decode(in_log) == {"to": "bob", "n": [1, None]}
    assert bytes(body_from_json(in_log, encoding)) == encode({"to": "bob", "n": [1, None]})


@BOTH
def test_missing_body_is_an_empty_object(encoding: Encoding) -> None:
    payload = encode_payload(messages.Send("c1", "op"), encoding)
    heard = decode_payload(Opcode.SEND, payload, encoding)
    assert isinstance(heard, messages.Send)
    assert bytes(body_to_json(heard.body, encoding)) == b"{}"


def test_first_payload_determines_the_encoding() -> None:
    for encoding in Encoding:
        assert sniff_encoding(encode_payload(messages.Hello("v1"), encoding)) is encoding
        assert sniff_encoding(encode_payload(messages.Hello(), encoding)) is encoding


@pytest.mark.parametrize(
    ("opcode", "payload", "code"),
    [
        (999, b"{}", CloseCode.BAD_OPCODE),
        (Opcode.SEND, b"{}", CloseCode.BAD_FRAME),
        (Opcode.SEND, b'{"id": 1, "op": "x"}', CloseCode.BAD_FRAME),
        (Opcode.SEND, b'{"id": "a", "op": "\xff"}', CloseCode.BAD_FRAME),
        (Opcode.PING, b"not json", CloseCode.BAD_FRAME),
        (Opcode.PING, b"[" * 100_000, CloseCode.BAD_FRAME),
        (Opcode.SEND, b'{"id":"a","op":"b","body":' + b"[" * 5000, CloseCode.BAD_FRAME),
    ],
)
def test_payload_that_does_not_match_its_opcode_is_a_violation(
    opcode: int, payload: bytes, code: CloseCode
) -> None:
    with pytest.raises(Violation) as refused:
        decode_payload(opcode, payload, Encoding.JSON)
    assert refused.value.code is code


def test_body_of_invalid_utf8_does_not_reach_the_log() -> None:
    said = decode_payload(Opcode.SEND, b'{"id":"a","op":"b","body":{"t":"x"}}', Encoding.JSON)
    assert isinstance(said, messages.Send)
    with pytest.raises(Violation):
        body_to_json(msgspec.Raw(b'{"t":"\xff"}'), Encoding.JSON)


@given(st.sampled_from(list(Encoding)), st.integers(0, 100), st.binary(max_size=80))
@settings(deadline=None, max_examples=150)
def test_any_bytes_are_a_message_or_a_violation(
    encoding: Encoding, opcode: int, data: bytes
) -> None:
    for decode in (
        lambda: decode_payload(opcode, data, encoding),
        lambda: decode_pair(data, encoding),
    ):
        try:
            decode()
        except Violation:
            continue


def test_every_opcode_has_one_message_and_a_direction() -> None:
    assert set(MESSAGES) == set(Opcode)
    assert Opcode.LOGOUT.is_from_client
    assert not Opcode.WELCOME.is_from_client
