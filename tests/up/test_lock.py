"""A data directory has one `up` at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkaesque.up.lock import AlreadyRunning, held


def test_second_is_refused_and_names_the_first(tmp_path: Path) -> None:
    with held(tmp_path):
        with (
            pytest.raises(AlreadyRunning, match=f"process {os.getpid()}") as refused,
            held(tmp_path),
        ):
            pass
        assert f"kafkaesque status --data {tmp_path}" in refused.value.fix
        with held(tmp_path / "another"):
            pass


def test_directory_is_free_again_after_the_first(tmp_path: Path) -> None:
    for _ in range(2):
        with held(tmp_path):
            pass
