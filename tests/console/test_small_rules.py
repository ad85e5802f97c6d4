"""Paging, offset resets, queries, metrics, assignments, access control and formatting."""

from __future__ import annotations

import contextlib
import math

import pytest

from kafkaesque.admin.rules.offset_reset import OffsetSpec, Shift
from kafkaesque.console.cluster.queries import read_assignment
from kafkaesque.console.documents.groups import read_target
from kafkaesque.console.messages.query import (
    InvalidQuery,
    StartPosition,
    read_query,
    read_start,
)
from kafkaesque.console.messages.ranges import windows_back
from kafkaesque.console.rules import formatting
from kafkaesque.console.rules.exposition import quantile, read_exposition
from kafkaesque.console.rules.paging import PageRequest, paginate, read_page_request
from kafkaesque.console.web.openapi import MEANINGS, OPERATIONS, openapi_document
from kafkaesque.console.web.security import (
    ADDRESSES_MAX,
    FREE_ATTEMPTS,
    OperatorAccess,
    TooManyAttempts,
    allowed_hosts_test,
    is_csrf_token,
)


def test_a_list_is_searched_sorted_and_paginated() -> None:
    items = [(f"topic-{n:05}", n % 7 or None) for n in range(10_000)]
    page = paginate(
        items, PageRequest("TOPIC-00", "-size", 2, 50), lambda i: i[0], {"size": lambda i: i[1]}
    )
    assert (page.total, page.pages, page.number) == (1000, 20, 2)
    assert [item[1] for item in page.items] == [6] * 50
    last = paginate(
        items, PageRequest("", "size", 999, 50), lambda i: i[0], {"size": lambda i: i[1]}
    )
    assert last.number == 200
    assert last.items[-1][1] is None


def test_page_requests_are_bounded() -> None:
    assert read_page_request({"page": "-3", "size": "99999", "q": " a "}) == PageRequest(
        "a", "", 1, 500
    )
    assert read_page_request({"page": "9" * 30, "size": "x"}) == PageRequest()


def test_a_target_is_read() -> None:
    assert read_target("oldest") == OffsetSpec("beginning")
    assert read_target("newest") == OffsetSpec("end")
    assert read_target("offset:42") == OffsetSpec("offset", 42)
    assert read_target("time:5") == OffsetSpec("time", 5)
    assert read_target("shift:-10") == Shift(-10)


@pytest.mark.parametrize("text", ["", "soon", "offset:", "offset:-1", "shift:x", "oldest:3"])
def test_what_is_no_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        read_target(text)


def test_a_message_query_is_parsed() -> None:
    query = read_query({"from": "time:2026-11-16T05:00:00Z", "partition": "0, 2", "limit": "9999",
                        "key": "k", "filter": "partition == 2", "decode": "json"})  # fmt: skip
    assert query.start == StartPosition("time", 1_794_805_200_000)
    assert query.partitions == {0, 2}
    assert (query.limit, query.key, query.decode) == (1000, b"k", "json")
    assert read_start("") == StartPosition("newest")
    assert read_start("last:5") == StartPosition("last", 5)


@pytest.mark.parametrize(
    "parameters",
    [{"from": "yesterday"}, {"from": "offset:x"}, {"from": "time:soon"}, {"partition": "a"},
     {"limit": "many"}, {"filter": "value ="}, {"decode": "xml"}, {"until": "never"}],
)  # fmt: skip
def test_an_invalid_message_query_is_rejected(parameters: dict[str, str]) -> None:
    with pytest.raises(InvalidQuery):
        read_query(parameters)


def test_windows_back_cover_every_offset_once() -> None:
    windows = windows_back({0: (0, 1000), 1: (5, 8), 2: (4, 4)}, 10)
    assert windows[0] == {0: (990, 1000), 1: (5, 8)}
    covered = [offset for window in windows for offset in range(*window.get(0, (0, 0)))]
    assert sorted(covered) == list(range(1000))
    assert all(2 not in window for window in windows)


def test_metrics_are_parsed_and_malformed_lines_skipped() -> None:
    page = read_exposition(
        "# HELP a x\na 1\n"
        'b_total{api="produce",note="a \\"quoted\\", \\\\ and \\n"} 2.5 1700000000\n'
        'broken line here\nc{x="1"} NaN\n'
    )
    assert page.value("a") == 1
    assert page.all("b_total")[0].labels["note"] == 'a "quoted", \\ and \n'
    assert page.total("b_total", api="produce") == 2.5
    assert "broken" not in page


def test_a_quantile_covers_only_new_observations() -> None:
    before = {0.001: 10.0, 0.01: 10.0, math.inf: 10.0}
    after = {0.001: 10.0, 0.01: 110.0, math.inf: 110.0}
    assert quantile(before, after, 0.5) == pytest.approx(0.0055)
    assert math.isnan(quantile(after, after, 0.5))
    assert quantile({}, {0.001: 0.0, math.inf: 5.0}, 0.99) == 0.001


def test_assignments_are_parsed_and_malformed_ones_ignored() -> None:
    data = (
        b"\0\1" + b"\0\0\0\1" + b"\0\1a" + b"\0\0\0\2" + b"\0\0\0\3\0\0\0\4" + b"\xff\xff\xff\xff"
    )
    assert read_assignment(data) == [("a", 3), ("a", 4)]
    assert read_assignment(b"") == []
    assert read_assignment(b"\0\1\0\0\0\1\0\1a\x7f\xff\xff\xff") == []


def test_a_session_needs_the_password_and_expires() -> None:
    now = [0.0]
    access = OperatorAccess("metamorphosis", 60.0, lambda: now[0])
    assert access.sign_in("wrong", "192.0.2.1") is None
    session = access.sign_in("metamorphosis", "192.0.2.1")
    assert session is not None
    assert access.session(session.id) == session
    assert is_csrf_token(session, session.csrf)
    assert not is_csrf_token(session, None)
    now[0] = 61.0
    assert access.session(session.id) is None


def test_wrong_passwords_are_limited_per_address() -> None:
    now = [0.0]
    access = OperatorAccess("metamorphosis", 60.0, lambda: now[0])
    for _ in range(FREE_ATTEMPTS):
        assert not access.is_password("guess", "192.0.2.1")
    with pytest.raises(TooManyAttempts):
        access.is_password("metamorphosis", "192.0.2.1")
    now[0] = 2.5
    assert access.is_password("metamorphosis", "192.0.2.1")


def test_wrong_passwords_from_one_address_do_not_lock_out_another() -> None:
    access = OperatorAccess("metamorphosis", 60.0, lambda: 0.0)
    for _ in range(100):
        with contextlib.suppress(TooManyAttempts):
            access.is_password("guess", "192.0.2.1")
    assert access.is_password("metamorphosis", "192.0.2.2")
    assert access.sign_in("metamorphosis", "192.0.2.2") is not None


def test_addresses_of_one_ipv6_network_share_a_limit() -> None:
    access = OperatorAccess("metamorphosis", 60.0, lambda: 0.0)
    for number in range(FREE_ATTEMPTS):
        assert not access.is_password("guess", f"2001:db8::{number}")
    with pytest.raises(TooManyAttempts):
        access.is_password("guess", "2001:db8::ffff")
    assert not access.is_password("guess", "2001:db8:0:1::1")


def test_only_the_latest_addresses_are_remembered() -> None:
    access = OperatorAccess("metamorphosis", 60.0, lambda: 0.0)
    for _ in range(FREE_ATTEMPTS):
        assert not access.is_password("guess", "192.0.2.1")
    for number in range(ADDRESSES_MAX):
        assert not access.is_password("guess", f"10.0.{number // 256}.{number % 256}")
    assert not access.is_password("guess", "192.0.2.1")


def test_without_a_password_nobody_signs_in() -> None:
    access = OperatorAccess("", 60.0, lambda: 0.0)
    assert not access.is_enabled
    assert access.sign_in("", "192.0.2.1") is None


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1:8080", True), ("localhost", True), ("[::1]:8080", True), ("console.lan:80", True),
     ("evil.example:8080", False), ("", False), ("10.0.0.5:8080", False)],
)  # fmt: skip
def test_only_known_host_names_are_allowed(host: str, expected: bool) -> None:
    assert allowed_hosts_test("127.0.0.1", ("console.lan",))(host) is expected


def test_any_address_is_allowed_on_a_wildcard_listener() -> None:
    assert allowed_hosts_test("0.0.0.0", ())("10.0.0.5:8080")
    assert not allowed_hosts_test("0.0.0.0", ())("evil.example")


@pytest.mark.parametrize(
    ("form", "value", "expected"),
    [
        (formatting.count, 1234567, "1,234,567"),
        (formatting.count, None, "–"),
        (formatting.short, 999, "999"),
        (formatting.short, 12345, "12.3k"),
        (formatting.short, 0.25, "0.2"),
        (formatting.size, 512, "512 B"),
        (formatting.size, 1536, "1.5 KiB"),
        (formatting.duration, 0.012, "12 ms"),
        (formatting.duration, 3725, "1 h 2 min"),
        (formatting.duration, 59.94, "59.9 s"),
        (formatting.retention, -1, "forever"),
        (formatting.retention, 604_800_000, "7 d"),
        (formatting.percent, 0.256, "26%"),
    ],
)
def test_numbers_are_formatted_for_people(form: object, value: object, expected: str) -> None:
    assert form(value) == expected  # type: ignore[operator]


def test_a_sparkline_without_data_is_flat() -> None:
    assert formatting.spark_points([]) == "0,23 100,23"
    assert formatting.spark_points([0, 0]) == "0.0,23.0 100.0,23.0"
    assert formatting.spark_points([0, 10]).endswith("100.0,2.0")


def test_every_operation_is_documented_once() -> None:
    document = openapi_document()
    identifiers = [
        item["operationId"] for path in document["paths"].values() for item in path.values()
    ]
    assert len(identifiers) == len(set(identifiers)) == len(OPERATIONS)
    assert all(name in MEANINGS for operation in OPERATIONS for name in operation.query)
