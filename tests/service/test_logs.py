"""The two forms of a server's log."""

from __future__ import annotations

import json
import logging
import sys

from kafkaesque.service.logs import JsonLines


def record(text: str, *args: object, failed: bool = False) -> logging.LogRecord:
    made = logging.LogRecord(
        "kafkaesque.connection", logging.WARNING, __file__, 1, text, args, None
    )
    made.created = 1_700_000_000.25
    if failed:
        try:
            raise ValueError("gone\nwrong")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def test_event_is_one_json_object_on_one_line() -> None:
    line = JsonLines().format(record('closing "%s":\n%d Bytes für %s', "a", 3, "ÿ"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250+00:00",
        "level": "warning",
        "logger": "kafkaesque.connection",
        "message": 'closing "a":\n3 Bytes für ÿ',
    }


def test_exception_goes_with_its_event_on_the_same_line() -> None:
    line = JsonLines().format(record("failed", failed=True))
    assert "\n" not in line
    exception = json.loads(line)["exception"]
    assert exception.startswith("Traceback")
    assert exception.endswith("ValueError: gone\nwrong")
