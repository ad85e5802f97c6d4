"""Messages as typed, as stored and as shown."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.text.rules.commands import BadCommand
from kafkaesque.broker.text.rules.messages import TextMessage, read_message, show_message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("plain text", TextMessage(None, b"plain text", ())),
        (
            '{"Header": "header", "Key": "124", "Body": "Hello World!"}',
            TextMessage(b"124", b"Hello World!", (("Header", b"header"),)),
        ),
        ('{"Body": "b"}', TextMessage(None, b"b", ())),
        ('{"Key": 124, "Body": {"a": [1]}}', TextMessage(b"124", b'{"a":[1]}', ())),
        (
            '{"Header": {"a": "1", "b": 2}, "Body": ""}',
            TextMessage(None, b"", (("a", b"1"), ("b", b"2"))),
        ),
        # Objects of somebody else's are bodies.
        ('{"Key": "1"}', TextMessage(None, b'{"Key": "1"}', ())),
        ('{"Body": "b", "other": 1}', TextMessage(None, b'{"Body": "b", "other": 1}', ())),
        ('{"Body": ', TextMessage(None, b'{"Body": ', ())),
        ("[1]", TextMessage(None, b"[1]", ())),
    ],
)
def test_text_becomes_a_record(text: str, message: TextMessage) -> None:
    assert read_message(text) == message


@pytest.mark.parametrize("key", ["true", "[1]", "{}"])
def test_key_that_cannot_be_one_is_refused(key: str) -> None:
    with pytest.raises(BadCommand):
        read_message(f'{{"Key": {key}, "Body": "b"}}')


def test_bytes_that_are_no_text_are_shown_as_base64() -> None:
    shown = json.loads(show_message(b"\xff", b"\xfe", (("h", b"\xfd"), ("g", None))))
    assert shown == {
        "Header": {"hBase64": "/Q==", "g": None},
        "KeyBase64": "/w==",
        "BodyBase64": "/g==",
    }


@settings(deadline=None)
@given(st.binary(), st.binary(), st.one_of(st.none(), st.text()))
def test_shown_message_is_one_printable_line(key: bytes, body: bytes, header: str | None) -> None:
    headers = () if header is None else (("Header", header.encode(errors="replace")),)
    assert show_message(key, body, headers).isprintable()


@settings(deadline=None)
@given(st.text().filter(lambda text: "\n" not in text), st.text())
def test_displayed_message_can_be_published_again(key: str, body: str) -> None:
    message = TextMessage(key.encode(errors="replace"), body.encode(errors="replace"), ())
    assert read_message(show_message(message.key, message.body, ())) == message
