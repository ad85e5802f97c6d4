"""After any operations and a power failure at any moment, the recovered log is an allowed one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.broker.replication.entry_model import Machine, PowerCut

from kafkaesque.broker.replication import entry_index, entry_log, entry_map

STEPS = 60

pytestmark = pytest.mark.pure


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small, so that a few batches fill several blocks."""
    for module in (entry_index, entry_map, entry_log):
        monkeypatch.setattr(module, "BLOCK_ENTRIES", 3)
    slot_size = entry_index._PREFIX_SIZE_BYTES + 3 * entry_index._ENTRY_SIZE_BYTES
    monkeypatch.setattr(entry_index, "_SLOT_SIZE_BYTES", slot_size)
    return


def run(seed: int) -> None:
    machine = Machine(seed)
    random = machine.random
    for _ in range(3):
        how = random.randrange(4)
        if how == 0:
            machine.disk.faults.calls_to_power_cut = random.randrange(120)
        try:
            for _ in range(random.randrange(STEPS)):
                machine.step()
                if random.randrange(8) == 0:
                    machine.check_now()
        except PowerCut:
            machine.crash()
            continue
        machine.check_now()
        if how == 1:
            machine.restart()
        else:
            machine.disk.faults.calls_to_power_cut = -1
            machine.crash()
        machine.check_now()


@pytest.mark.parametrize("first", range(0, 150, 10))
def test_log_after_a_crash_is_a_prefix_of_what_was_written_with_everything_synced(
    first: int,
) -> None:
    for seed in range(first, first + 10):
        run(seed)


def test_partial_block_that_a_crash_restored_is_not_trusted() -> None:
    """The power failed when a later block was on disk and the full version of the earlier one was not."""
    run(3920)
