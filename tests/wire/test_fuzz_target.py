"""The fuzz target works: one second with a fixed seed finds nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).parents[1] / "fuzz" / "fuzz_wire.py"


def test_a_second_of_damaged_requests_raises_nothing_but_protocol_errors() -> None:
    # A process of its own: what a call takes is measured there, and our garbage is not in it.
    outcome = subprocess.run(
        [sys.executable, str(TARGET), "--seconds", "1", "--seed", "1"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert "wire: cases 1 to " in outcome.stdout
    assert " passed, 0 failed" in outcome.stdout
