"""How long this process itself was held up: a gap that the clients made is not the brokers'."""

from __future__ import annotations

import threading
import time
from typing import Final

_EVERY_S: Final = 0.005


class StallMeter(threading.Thread):
    """Sleeps again and again, and notes by how much it woke up too late at worst."""

    def __init__(self) -> None:
        super().__init__(name="stall-meter", daemon=True)
        self._ended = threading.Event()
        self.longest_ms = 0

    def run(self) -> None:
        due = time.monotonic() + _EVERY_S
        while not self._ended.wait(_EVERY_S):
            now = time.monotonic()
            self.longest_ms = max(self.longest_ms, int((now - due) * 1000))
            due = now + _EVERY_S

    def end(self) -> int:
        self._ended.set()
        self.join()
        return self.longest_ms
