"""One broker under the shim that writes down what is durable, and its power cuts."""

from __future__ import annotations

import random
from pathlib import Path

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.power import Losses, cut_power, scan


class PoweredDisk:
    """The data directory `data` of a broker that runs in `environment`."""

    def __init__(self, data: Path, place: Path) -> None:
        self._data = data
        self._place = place
        (place / "backups").mkdir(parents=True)
        self.environment = {
            "LD_PRELOAD": str(shims.build("power", place)),
            "KAFKAESQUE_POWER_ROOT": str(data),
            "KAFKAESQUE_POWER_JOURNAL": str(place / "journal"),
            "KAFKAESQUE_POWER_BACKUPS": str(place / "backups"),
        }
        self._journal = scan(data)
        self.syncs_seen = 0

    def cut(self, rng: random.Random) -> Losses:
        """The broker is dead: take from its disk what was not synced."""
        journal = self._place / "journal"
        if journal.exists():
            with journal.open() as lines:
                for line in lines:
                    self._journal.read(line)
            journal.unlink()
        self.syncs_seen += self._journal.syncs
        losses = cut_power(self._data, self._journal, rng)
        for backup in (self._place / "backups").iterdir():
            backup.unlink()
        # What the disk kept is what the next life starts from.
        self._journal = scan(self._data)
        return losses
