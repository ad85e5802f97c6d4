"""The command syntax."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.text.rules.commands import (
    BadCommand,
    Consume,
    ForeignProtocol,
    Help,
    Publish,
    Quit,
    Subscribe,
    Topics,
    matches,
    parse,
)


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("PUBS orders hello  world ", Publish("orders", "hello  world ")),
        ("pubs orders x", Publish("orders", "x")),
        ("SUBS orders billing", Subscribe("orders", "billing", None)),
        ("SUBS orders.* billing 3", Subscribe("orders.*", "billing", 3)),
        ("CONS orders s1", Consume("orders", "s1", None)),
        ("CONS orders s1 17", Consume("orders", "s1", 17)),
        ("CONS orders s1 2:17", Consume("orders", "s1", 17, 2)),
        ("TOPICS", Topics("*")),
        ("TOPICS or?ers", Topics("or?ers")),
        ("help", Help()),
        ("QUIT", Quit()),
        ("", None),
        ("   ", None),
    ],
)
def test_line_becomes_its_command(line: str, command: object) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    "line",
    [
        "PUBS",
        "PUBS orders",
        "PUBS or/ders x",
        "PUBS .. x",
        "PUBS " + "t" * 250 + " x",
        "SUBS orders",
        "SUBS orders g 0",
        "SUBS orders g x",
        "SUBS orders g 1 2",
        "SUBS orders " + "g" * 250,
        "CONS orders",
        "CONS orders s1 -1",
        "CONS orders s1 ²",
        "CONS orders s1 :",
        "CONS orders s1 " + "9" * 19,
        "CONS [a-z] s1",
        "TOPICS a b",
        "FOO",
    ],
)
def test_wrong_line_is_refused(line: str) -> None:
    with pytest.raises(BadCommand):
        parse(line)


@pytest.mark.parametrize("line", ["POST / HTTP/1.1", "GET / HTTP/1.1", "Host: localhost:9100"])
def test_http_is_recognised(line: str) -> None:
    with pytest.raises(ForeignProtocol):
        parse(line)


@pytest.mark.parametrize(
    ("pattern", "topic", "is_meant"),
    [
        ("orders", "orders", True),
        ("order?", "orders", True),
        ("*", "orders", True),
        ("*", "__consumer_offsets", False),
        ("__consumer_offsets", "__consumer_offsets", True),
        ("orders.*", "orders", False),
    ],
)
def test_pattern_means_topics_but_no_internal_one(pattern: str, topic: str, is_meant: bool) -> None:
    assert matches(pattern, topic) is is_meant


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=80))
def test_no_line_breaks_the_parser(line: str) -> None:
    with contextlib.suppress(BadCommand, ForeignProtocol):
        parse(line)
