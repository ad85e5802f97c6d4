"""Runs the vectors of docs/GATEWAY.md and compares its tables with the code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from kafkaesque.edge.protocol.codec import (
    Encoding,
    decode_pair,
    decode_payload,
    encode_pair,
    encode_payload,
)
from kafkaesque.edge.protocol.codes import CloseCode, ErrorCode
from kafkaesque.edge.protocol.framing import FrameParser, encode_frame
from kafkaesque.edge.protocol.messages import MESSAGES, Opcode

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "GATEWAY.md").read_text()
BROWSER = (ROOT / "src/kafkaesque/edge/web/client.js").read_text()
[BLOCK] = re.findall(r"```vectors\n(.*?)```", GUIDE, re.S)
VECTORS = [line.split(None, 4) for line in BLOCK.splitlines()]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: "-".join(vector[:3]))
def test_vector_encodes_and_decodes_as_documented(vector: list[str]) -> None:
    name, transport, encoding_name, hexadecimal, payload = vector
    opcode, encoding, data = Opcode[name], Encoding(encoding_name), bytes.fromhex(hexadecimal)
    message = msgspec.json.decode(payload, type=MESSAGES[opcode])
    if transport == "tcp":
        assert encode_frame(opcode, encode_payload(message, encoding)) == data
        [frame] = FrameParser().feed(data)
        assert frame.opcode == opcode
        assert decode_payload(frame.opcode, frame.payload, encoding) == message
    else:
        assert encode_pair(message, encoding) == data
        assert decode_pair(data, encoding) == message


def test_guide_lists_every_opcode_with_its_direction() -> None:
    rows = re.findall(r"^\| (\d+) ([A-Z_]+) \| (client|gateway) \|", GUIDE, re.M)
    assert [(int(number), name) for number, name, _ in rows] == [
        (opcode.value, opcode.name) for opcode in Opcode
    ]
    for number, _, speaker in rows:
        assert (speaker == "client") is Opcode(int(number)).is_from_client


def test_guide_lists_every_code_with_whether_to_reconnect() -> None:
    cells = re.findall(r"(\d{4}) \| ([a-z-]+) \| (yes|no)", GUIDE)
    assert {(int(code), name, again == "yes") for code, name, again in cells} == {
        (code.value, code.name.lower().replace("_", "-"), code.reconnect) for code in CloseCode
    }
    errors = dict(re.findall(r"`([a-z-]+)` (yes|no)", GUIDE))
    assert errors == {code.text: "yes" if code.retry else "no" for code in ErrorCode}


def test_browser_client_has_the_same_opcodes() -> None:
    found = {name: int(number) for name, number in re.findall(r"([A-Z_]+): (\d+)", BROWSER)}
    assert found == {opcode.name: opcode.value for opcode in Opcode}
