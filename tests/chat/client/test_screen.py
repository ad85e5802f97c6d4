from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from kafkaesque.chat.client.rules.terminal_input import Keyboard, TypedLine, parse_line
from kafkaesque.chat.client.rules.view import ChatView
from kafkaesque.chat.client.screen import ScreenFrame, draw

NOW_MS = 1_790_000_000_000
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def plain(
    view: ChatView, width: int = 80, height: int = 20, typed: str = "", scroll: int = 0
) -> list[str]:
    lines = draw(view, ScreenFrame(width, height, typed, "online", NOW_MS, scroll))
    return [_COLOURS.sub("", line) for line in lines]


def talking(*texts: str) -> ChatView:
    view = ChatView("ann")
    for number, text in enumerate(texts):
        body = {
            "message_id": f"bob/{number}",
            "from": "bob",
            "text": text,
            "sent_ms": NOW_MS + number,
        }
        view.apply_event("message.new", body, None, NOW_MS)
    view.choose("bob")
    return view


@pytest.mark.parametrize(("width", "height"), [(80, 24), (40, 8), (200, 60), (10, 3)])
@pytest.mark.parametrize(
    "text", ["hello", "\u4f60\u597d " * 80, "x" * 500, "a\nb\n\nc", "\u00e9" * 90]
)
def test_screen_always_has_the_requested_size(width: int, height: int, text: str) -> None:
    lines = plain(talking(text), width, height, typed=text)
    assert len(lines) == max(height, 8)
    assert {cell_len(line) for line in lines} == {max(width, 40)}


def test_screen_shows_senders_texts_and_stages() -> None:
    view = talking("hello ann")
    view.sent("c1", "bob", "hello bob", NOW_MS + 10)
    view.apply_event("message.delivered", {"message_id": "ann/c1", "by": "bob"}, None, NOW_MS)
    view.apply_event("typing", {"from": "bob", "at_ms": NOW_MS}, None, NOW_MS)
    text = "\n".join(plain(view, typed="how are"))
    assert "bob: hello ann" in text
    assert "ann: hello bob \u2713\u2713" in text
    assert "bob is typing" in text
    assert "> how are" in text
    assert "online" in text


def test_unread_counts_are_shown_in_the_list_and_the_header() -> None:
    view = talking("x")
    body = {"message_id": "cat/1", "from": "cat", "text": "y", "sent_ms": NOW_MS}
    view.apply_event("message.new", body, None, NOW_MS)
    lines = plain(view)
    assert "1 unread" in lines[0]
    assert any(line.startswith(" cat") and line[:22].endswith(" 1") for line in lines)


def test_control_characters_of_others_do_not_reach_the_terminal() -> None:
    lines = draw(
        talking("\x1b]0;owned\x07 \x9b31m \u202e"), ScreenFrame(80, 20, "", "online", NOW_MS)
    )
    text = _COLOURS.sub("", "\n".join(lines))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text
    assert "\u202e" not in text


def test_scrolling_shows_older_messages() -> None:
    view = talking(*(f"line {number}" for number in range(50)))
    assert "line 49" in "\n".join(plain(view))
    assert "line 20" not in "\n".join(plain(view))
    assert "line 20" in "\n".join(plain(view, scroll=20))
    assert "line 0 " in "\n".join(plain(view, scroll=999))


def test_terminal_bytes_are_decoded_to_keys() -> None:
    keyboard = Keyboard()
    assert keyboard.feed("h\u00e9".encode()[:2]) == ["h"]
    assert keyboard.feed("\u00e9".encode()[1:]) == ["\u00e9"]
    assert keyboard.feed(b"\r\x7f\t\x1b[Z\x1b[5~\x1b[6~\x03") == [
        "enter", "erase", "next", "previous", "pageup", "pagedown", "quit",
    ]  # fmt: skip
    assert keyboard.feed(b"\x1b[1;5Hx\x01\xff\xff\xff\xff\xffy") == ["x", "y"]


@pytest.mark.parametrize(
    ("line", "typed"),
    [
        ("hello /there", TypedLine("", "hello /there")),
        (" /to  bob ", TypedLine("to", "bob")),
        ("/QUIT", TypedLine("quit", "")),
        ("", TypedLine("", "")),
    ],
)
def test_lines_are_text_or_commands(line: str, typed: TypedLine) -> None:
    assert parse_line(line) == typed
