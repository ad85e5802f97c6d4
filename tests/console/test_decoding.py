"""Decoding: format detection, Protobuf without a schema, Avro with one."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.console.decoding.avro import Schemas
from kafkaesque.console.decoding.detection import Decoder, plain
from kafkaesque.console.decoding.protobuf_wire import NotProtobuf, read_message

SCHEMA = {"type": "record", "name": "Bug", "fields": [{"name": "legs", "type": "int"},
                                                      {"name": "name", "type": "string"}]}  # fmt: skip
BUG = {"legs": 6, "name": "Gregor"}
DECODER = Decoder("bugs", Schemas())


def avro(value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), value)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("data", "kind", "value"),
    [
        (None, "null", None),
        (b"", "text", ""),
        (b'{"a": [1, null]}', "json", {"a": [1, None]}),
        (b" 12.5", "json", 12.5),
        (b"hello, Gregor\n", "text", "hello, Gregor\n"),
        ("žluť".encode(), "text", "žluť"),
        (b"{not json", "text", "{not json"),
        (b"<script>alert(1)</script>", "text", "<script>alert(1)</script>"),
        (msgspec.msgpack.encode({"a": b"\xff"}), "msgpack", {"a": "ff"}),
        (b"\x08\x96\x01\x12\x07testing", "protobuf", {"1": 150, "2": "testing"}),
        (b"\xff\xfe\x00", "hex", "fffe00"),
        (b"with\x00null", "hex", b"with\x00null".hex()),
    ],
)
def test_the_format_of_bytes_is_detected(data: bytes | None, kind: str, value: Any) -> None:
    found = DECODER.decode(data)
    assert (found.kind, found.value) == (kind, value)


def test_a_chosen_format_falls_back_if_it_does_not_fit() -> None:
    assert Decoder("t", Schemas(), "hex").decode(b"ab").value == "6162"
    assert Decoder("t", Schemas(), "text").decode(b"\xff").value == "�"
    assert Decoder("t", Schemas(), "json").decode(b"{").kind == "text"
    assert Decoder("t", Schemas(), "avro").decode(b"ab").kind == "text"
    assert Decoder("t", Schemas(), "protobuf").decode(b"\xff").kind == "hex"


def test_avro_by_the_registrys_framing_and_by_topic(tmp_path: Path) -> None:
    (tmp_path / "7.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "bugs.avsc").write_text(json.dumps(SCHEMA))
    schemas = Schemas(tmp_path)
    framed = b"\0" + (7).to_bytes(4) + avro(BUG)
    found = Decoder("other", schemas).decode(framed)
    assert (found.kind, found.value, found.schema_id) == ("avro", BUG, 7)
    assert Decoder("bugs", schemas).decode(avro(BUG)).value == BUG
    assert Decoder("bugs", schemas).decode(b"\xc3\x01" + b"12345678" + avro(BUG)).value == BUG
    assert Decoder("bugs", schemas).decode(b"no avro").kind == "text"


def test_an_avro_container_file_is_decoded_to_its_records() -> None:
    stream = io.BytesIO()
    fastavro.writer(stream, fastavro.parse_schema(SCHEMA), [BUG, BUG])
    found = DECODER.decode(stream.getvalue())
    assert (found.kind, found.value) == ("avro", [BUG, BUG])


def test_invalid_schemas_and_paths_outside_the_directory_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "in" / "bad.avsc").write_text("{")
    schemas = Schemas(tmp_path / "in")
    assert schemas.by_topic("../secret", is_key=False) is None
    assert schemas.by_topic("bad", is_key=False) is None
    with pytest.raises(ValueError, match="not an http URL"):
        Schemas(registry="file:///etc")


def test_protobuf_repeated_and_nested_fields() -> None:
    nested = b"\x0a\x02\x08\x01" + b"\x0a\x02\x08\x02" + b"\x15\x00\x00\xc0\x3f"
    assert read_message(nested) == {"1": [{"1": 1}, {"1": 2}], "2": 1.5}


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x00\x01", b"\x0b", b"\xff" * 12])
def test_malformed_protobuf_is_rejected(data: bytes) -> None:
    with pytest.raises(NotProtobuf):
        read_message(data)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(["auto", "json", "protobuf", "msgpack", "avro"]))
def test_any_bytes_decode_to_some_format(data: bytes, wanted: str) -> None:
    found = Decoder("t", Schemas(), wanted).decode(data)
    assert found.kind in ("json", "avro", "protobuf", "msgpack", "text", "hex")
    msgspec.json.encode(found.value)


def test_deep_nesting_is_cut() -> None:
    deep: Any = "x"
    for _ in range(200):
        deep = [deep]
    assert "..." in str(plain(deep))
    assert DECODER.decode(b"[" * 100_000).kind == "text"
