"""Settings from file, environment and command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import BROKER_SETTINGS
from kafkaesque.service.settings import merge_settings, read_properties

LISTING = "`config list`"


def test_later_sources_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\n! too\n\nnum.partitions = 2\nnode.id=2\nlog.dirs=a=b\n")
    found = merge_settings(
        BROKER_SETTINGS,
        listing=LISTING,
        defaults={"flush": "never", "node.id": "1"},
        file=file,
        environment={"KAFKAESQUE_NODE_ID": "3", "KAFKAESQUE_NUM_PARTITIONS": "3", "HOME": "/"},
        assignments=[("node.id", "4")],
    )
    assert found == {"flush": "never", "node.id": "4", "num.partitions": "3", "log.dirs": "a=b"}


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("num.partition=1", "2: there is no setting 'num.partition'; did you mean num.partitions?"),
        ("zzz=1", "2: there is no setting 'zzz' (`config list` lists them all)"),
        ("nonsense", "2: 'nonsense' is not NAME=VALUE."),
    ],
)
def test_wrong_line_is_named(line: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=1\n{line}\n")
    with pytest.raises(InvalidConfig) as refused:
        merge_settings(BROKER_SETTINGS, listing=LISTING, file=file)
    assert str(refused.value).startswith(f"{file}:{text}")


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"cannot read .*/none: No such file"):
        list(read_properties(tmp_path / "none"))
