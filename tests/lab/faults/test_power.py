"""The durable state according to the power journal, and the files after a simulated power cut."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkaesque.lab.faults.power import PowerJournal, cut_power, scan

SEEDS = range(40)


def journal_of(*lines: str, sizes: dict[str, int] | None = None) -> PowerJournal:
    journal = PowerJournal(sizes or {})
    for line in lines:
        journal.read(line.replace(" ", "\t") + "\n")
    return journal


def test_length_is_durable_when_its_sync_has_ended() -> None:
    assert journal_of("B 0 100 /d/f").lengths == {}
    assert journal_of("B 0 100 /d/f", "E 0").lengths == {"/d/f": 100}


def test_sync_does_not_cover_writes_after_its_start() -> None:
    journal = journal_of("B 0 100 /d/f", "O 0 aa /d/f", "E 0")
    assert [one.old for one in journal.overwrites["/d/f"]] == [b"\xaa"]
    assert journal_of("O 0 aa /d/f", "B 0 100 /d/f", "E 0").overwrites["/d/f"] == []


def test_name_is_durable_when_its_directory_is_synced() -> None:
    assert "/d/f" not in journal_of("B 0 100 /d/f", "E 0").names
    assert "/d/f" in journal_of("D 1 /d", "N 1 /d/f", "E 1").names


def test_rename_keeps_the_length_and_is_durable_with_the_directory() -> None:
    lines = ("B 0 9 /d/f.tmp", "E 0", "R /b/0 /d/f.tmp /d/f")
    journal = journal_of(*lines, sizes={"/d/f": 4})
    assert journal.lengths == {"/d/f": 9}
    assert [one.backup_length for one in journal.name_changes] == [4]
    assert journal_of(*lines, "D 1 /d", "E 1").name_changes == []
    assert len(journal_of(*lines, "D 1 /other", "E 1").name_changes) == 1


def test_truncated_file_is_durable_up_to_its_new_length() -> None:
    assert journal_of("T 3 /d/f", sizes={"/d/f": 10}).lengths == {"/d/f": 3}
    assert journal_of("T 30 /d/f", sizes={"/d/f": 10}).lengths == {"/d/f": 10}


@pytest.mark.parametrize("torn", ["O\t0\taabbcc", "E\t0", "R\t/b/0\t/d/f", "T\t1", "B"])
def test_truncated_last_line_is_ignored(torn: str) -> None:
    journal = journal_of("B 0 100 /d/f", sizes={"/d/f": 10})
    journal.read(torn)
    assert journal.lengths == {"/d/f": 10}
    assert (journal.overwrites, journal.name_changes) == ({}, [])


@pytest.mark.parametrize("seed", SEEDS)
def test_durable_bytes_survive_and_others_may_not(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"d" * 5000)
    journal = scan(tmp_path)
    path.write_bytes(b"d" * 5000 + b"n" * 9000)
    losses = cut_power(tmp_path, journal, Random(seed))
    left = path.read_bytes()
    assert left[:5000] == b"d" * 5000
    assert 5000 <= len(left) <= 14_000
    assert losses.bytes_lost == 14_000 - len(left)


def test_each_fate_of_unsynced_bytes_occurs(tmp_path: Path) -> None:
    fates = set()
    for seed in SEEDS:
        path = tmp_path / str(seed) / "f"
        path.parent.mkdir()
        path.write_bytes(b"")
        journal = scan(path.parent)
        path.write_bytes(b"n" * 9000)
        losses = cut_power(path.parent, journal, Random(seed))
        fates.add((losses.bytes_lost > 0, losses.bytes_garbled > 0))
    assert fates == {(False, False), (False, True), (True, False), (True, True)}


def test_overwritten_bytes_are_of_one_of_the_states_since_the_sync(tmp_path: Path) -> None:
    states = set()
    for seed in SEEDS:
        path = tmp_path / "f"
        path.write_bytes(b"33")
        journal = scan(tmp_path)
        journal.read(f"O\t0\t{b'11'.hex()}\t{path}\n")
        journal.read(f"O\t0\t{b'22'.hex()}\t{path}\n")
        cut_power(tmp_path, journal, Random(seed))
        states.add(path.read_bytes())
    assert states == {b"11", b"22", b"33"}


def test_new_name_without_a_directory_sync_may_vanish(tmp_path: Path) -> None:
    there = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        journal = scan(root)
        (root / "new").mkdir()
        (root / "new" / "f").write_bytes(b"")
        cut_power(root, journal, Random(seed))
        there.add(((root / "new").exists(), (root / "new" / "f").exists()))
    assert there == {(True, True), (True, False), (False, False)}


def test_rename_without_a_directory_sync_may_be_undone(tmp_path: Path) -> None:
    contents = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        path, backup = root / "f", tmp_path / f"backup-{seed}"
        path.write_bytes(b"old")
        journal = scan(root)
        backup.write_bytes(b"old")
        path.write_bytes(b"new")
        journal.read(f"B\t0\t3\t{path}.tmp\n")
        journal.read("E\t0\n")
        journal.read(f"R\t{backup}\t{path}.tmp\t{path}\n")
        cut_power(root, journal, Random(seed))
        contents.add(path.read_bytes())
    assert contents == {b"old", b"new"}


def test_removal_without_a_directory_sync_may_be_undone(tmp_path: Path) -> None:
    there = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()
        path, backup = root / "f", tmp_path / f"backup-{seed}"
        path.write_bytes(b"old")
        journal = scan(root)
        path.rename(backup)
        journal.read(f"U\t{backup}\t{path}\n")
        cut_power(root, journal, Random(seed))
        there.add(path.exists() and path.read_bytes())
    assert there == {False, b"old"}
