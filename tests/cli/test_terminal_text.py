from __future__ import annotations

import json
import os
import pty
import subprocess
import unicodedata

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.conftest import COMMAND, COMMAND_TIMEOUT_S, Run
from tests.cli.samples import SampleRecord

from kafkaesque.cli.record_output import OutputFormat, make_formatter
from kafkaesque.cli.render import Column, Screen, plain_table
from kafkaesque.cli.terminal_text import LINES, visible, visible_bytes, visible_json

TITLE = "\x1b]0;owned\x07"
HOSTILE = f"a{TITLE}\x7f\x9b31m\u202eb"
SHOWN = r"a\x1b]0;owned\x07\x7f\x9b31m\u202eb"


def on_terminal(kafka: str, *args: str) -> bytes:
    """What `kafkaesque ARGS` writes to a terminal, with `\\r\\n` as line ends as terminals have them."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "KAFKAESQUE_BOOTSTRAP": kafka, "NO_COLOR": "1", "COLUMNS": "200"}
    with subprocess.Popen([*COMMAND, *args], stdin=theirs, stdout=theirs, stderr=theirs,
                          env=environment) as process:  # fmt: skip
        os.close(theirs)
        written = b""
        try:
            while data := os.read(ours, 65536):
                written += data
        except OSError:  # Linux reports EIO when the last writer has closed the terminal.
            pass
        finally:
            os.close(ours)
        assert process.wait(COMMAND_TIMEOUT_S) == 0, written
    return written


def test_control_characters_become_visible_escapes() -> None:
    assert visible(HOSTILE) == SHOWN
    assert visible("línea 日本 🙂 \\x1b") == "línea 日本 🙂 \\x1b"
    assert visible("a\nb\tc\rd", LINES) == "a\nb\tc\\x0dd"
    assert visible("a\nb") == r"a\x0ab"


@given(st.text(st.characters()))
def test_no_text_has_a_control_character_left(text: str) -> None:
    left = visible(text)
    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in left)
    assert not any(unicodedata.bidirectional(one) in
                   ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI") for one in left)  # fmt: skip


def test_bytes_that_are_not_text_are_escaped() -> None:
    assert visible_bytes(b"\x9b31m\xff") == rb"\x9b31m\xff"


@given(st.dictionaries(st.text(), st.text()))
def test_json_for_a_terminal_means_the_same(document: dict[str, str]) -> None:
    assert json.loads(visible_json(json.dumps(document, ensure_ascii=False, indent=2))) == document


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (OutputFormat(for_terminal=True), SHOWN + "\n"),
        (OutputFormat(for_terminal=True, with_key=True, with_headers=True),
         f"{SHOWN}={SHOWN}\t{SHOWN}\t{SHOWN}\n"),
        (OutputFormat("%t|%k|%s|%h", for_terminal=True),
         f"{SHOWN}|{SHOWN}|{SHOWN}|{SHOWN}={SHOWN}"),
        (OutputFormat(), HOSTILE + "\n"),
    ],
    ids=["value", "key-and-headers", "template", "pipe"],
)  # fmt: skip
def test_records_are_escaped_for_terminals_only(form: OutputFormat, expected: str) -> None:
    data = HOSTILE.encode()
    record = SampleRecord(key_=data, value_=data, headers_=((HOSTILE, data),), topic_=HOSTILE)
    assert make_formatter(form)(record).decode() == expected


def test_json_of_a_record_is_escaped_for_a_terminal() -> None:
    record = SampleRecord(value_=HOSTILE.encode())
    line = make_formatter(OutputFormat(as_json=True, for_terminal=True))(record).decode()
    assert line == visible(line, LINES)
    assert json.loads(line)["value"] == HOSTILE


def test_the_format_of_the_user_is_not_escaped() -> None:
    form = OutputFormat("\\x1b[1m%s", for_terminal=True)
    assert make_formatter(form)(SampleRecord()) == b"\x1b[1mvalue"


def test_cells_of_tables_are_escaped_in_pipes_too() -> None:
    text = plain_table([Column("name", "Name")], [{"name": f"{HOSTILE}\nfake-row"}])
    assert text.splitlines() == ["NAME", rf"{SHOWN}\x0afake-row"]


def test_lists_fields_and_headings_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(as_json=False)
    screen.fields([("members", [HOSTILE])])
    screen.heading(HOSTILE)
    screen.note(HOSTILE)
    screen.warn(HOSTILE)
    out, err = capsys.readouterr()
    assert (out.count(SHOWN), err.count(SHOWN)) == (2, 2)
    assert HOSTILE not in out + err


def test_consume_on_a_terminal_shows_escapes_and_a_pipe_gets_the_bytes(
    command: Run, topic: str, kafka: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka})
    producer.produce(topic, HOSTILE.encode(), HOSTILE.encode())
    assert producer.flush(30) == 0

    assert on_terminal(kafka, "consume", topic, "--key") == f"{SHOWN}\t{SHOWN}\r\n".encode()
    assert command("consume", topic, "--key").out == f"{HOSTILE}\t{HOSTILE}\n"


def test_group_commands_and_top_on_a_terminal_show_escapes(
    topic: str, name: str, kafka: str
) -> None:
    group = f"{name}{HOSTILE}"
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    consumer.close()

    for args in (["group", "list"], ["group", "describe", group]):
        written = on_terminal(kafka, *args)
        assert f"{name}{SHOWN}".encode() in written
        assert TITLE.encode() not in written
    overview = on_terminal(kafka, "top", "--once", "--rows", "1000")
    assert name.encode() in overview
    assert TITLE.encode() not in overview
