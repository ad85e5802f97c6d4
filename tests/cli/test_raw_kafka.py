from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.samples import UNHURRIED
from tests.cli.servers import ScriptedKafka

from kafkaesque.cli.raw_kafka import Node, RawKafka, Reader
from kafkaesque.model.errors import ProtocolError


def test_versions_features_and_brokers_are_read() -> None:
    nodes = [Node(4, "kafka.example", 9092)]
    with ScriptedKafka(nodes) as server, RawKafka("127.0.0.1", server.port, 5) as kafka:
        versions = kafka.api_versions()
        assert versions.apis == {3: (0, 13), 18: (0, 4)}
        assert versions.features == {"metadata.version": (7, 30)}
        assert kafka.brokers() == nodes


def test_a_broker_of_old_is_asked_again_in_its_own_version() -> None:
    with ScriptedKafka([], old=True) as server, RawKafka("127.0.0.1", server.port, 5) as kafka:
        assert kafka.api_versions().apis == {3: (0, 13), 18: (0, 4)}


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x02ab", b"\0"])
def test_an_answer_that_is_not_kafkas_is_a_protocol_error(answer: bytes) -> None:
    with (
        ScriptedKafka([], raw_answer=answer) as server,
        RawKafka("127.0.0.1", server.port, 5) as kafka,
        pytest.raises(ProtocolError),
    ):
        kafka.api_versions()


def test_a_count_beyond_the_bytes_is_refused_before_anything_is_read() -> None:
    with pytest.raises(ProtocolError, match="counts more"):
        Reader(b"\x7f\xff\xff\xff").array(int)


@UNHURRIED
@given(st.binary(max_size=60))
def test_any_bytes_raise_only_a_protocol_error(data: bytes) -> None:
    readers = (Reader.int16, Reader.varint, Reader.string, Reader.compact_string, Reader.tags)
    for read in readers:
        with contextlib.suppress(ProtocolError):
            read(Reader(data))
    for lister in (Reader.array, Reader.compact_array):
        reader = Reader(data)
        with contextlib.suppress(ProtocolError):
            lister(reader, reader.int32)
