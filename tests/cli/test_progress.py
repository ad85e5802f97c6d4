from __future__ import annotations

import pytest

from kafkaesque.cli import progress
from kafkaesque.cli.progress import ProgressMeter


def test_a_meter_counts_and_draws_nothing_off_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with ProgressMeter("writing", visible=True, total=None) as meter:
        meter.add(1, 10)
        meter.add(2, 20)
    summary = meter.summary()
    assert (summary["records"], summary["bytes"]) == (3, 30)
    assert summary["records_per_s"] > 0
    assert capsys.readouterr() == ("", "")


def test_one_record_is_shown_without_a_rate() -> None:
    meter = ProgressMeter("writing", visible=False, total=None)
    meter.add(1, 2048)
    assert meter.sentence("written") == "1 record (2.0 KiB) written"


def test_several_records_are_shown_with_their_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, *[102.0] * 20])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    meter = ProgressMeter("writing", visible=False, total=None)
    meter.add(1, 1)
    assert "/s" not in meter.sentence("written")
    meter.add(999, 1023)
    assert meter.sentence("written") == "1,000 records (1.0 KiB) written in 2.0 s, 500/s"
