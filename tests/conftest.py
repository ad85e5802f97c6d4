"""pytest hooks for all tests."""

from __future__ import annotations

import signal

import pytest

import kafkaesque

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored. The processes that tests start and interrupt
    # would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"kafkaesque runs from {kafkaesque.BUILD.text}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if kafkaesque.BUILD.is_compiled:
        skip = pytest.mark.skip(reason="replaces functions that are compiled: make unit-pure")
        for item in items:
            if item.get_closest_marker("pure") is not None:
                item.add_marker(skip)
