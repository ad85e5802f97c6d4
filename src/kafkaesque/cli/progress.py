"""A progress line on standard error for long operations, on a terminal only."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kafkaesque.model.sizes import human_bytes

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

SHOW_AFTER_S = 0.5
"""Operations that end sooner show no progress bar."""
REFRESH_EVERY_S = 0.1


class ProgressMeter:
    """Counts records and bytes, and shows a progress bar if `visible`.

    `total` is None if it is unknown; `position` returns the progress, if it is not the number of
    records.
    """

    def __init__(
        self,
        label: str,
        *,
        visible: bool,
        total: int | None,
        position: Callable[[], int] | None = None,
    ) -> None:
        self.records = 0
        self.size_bytes = 0
        self._label = label
        self._total = total
        self._position = position
        self._visible = visible and sys.stderr.isatty()
        self._started = time.monotonic()
        self._drawn = self._started + SHOW_AFTER_S - REFRESH_EVERY_S
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._draw()
            self._bar.stop()

    @property
    def elapsed_s(self) -> float:
        return max(time.monotonic() - self._started, 1e-6)

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes
        if self._visible and time.monotonic() - self._drawn >= REFRESH_EVERY_S:
            self._draw()

    def summary(self) -> dict[str, float | int]:
        """The final figures, with units in their names."""
        elapsed_s = self.elapsed_s
        return {
            "records": self.records,
            "bytes": self.size_bytes,
            "elapsed_s": round(elapsed_s, 3),
            "records_per_s": round(self.records / elapsed_s, 1),
            "bytes_per_s": round(self.size_bytes / elapsed_s, 1),
        }

    def sentence(self, verb: str) -> str:
        """`1,000 records (12.0 KiB) written in 0.2 s, 5,000/s`."""
        plural = "record" if self.records == 1 else "records"
        text = f"{self.records:,} {plural} ({human_bytes(self.size_bytes)}) {verb}"
        if self.elapsed_s >= 0.01 and self.records > 1:
            text += f" in {self.elapsed_s:.1f} s, {self.records / self.elapsed_s:,.0f}/s"
        return text

    def _draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None:
            columns = [TextColumn("{task.description}"), BarColumn(bar_width=30)]
            if self._total is not None:
                columns += [TextColumn("{task.percentage:>3.0f} %"), TimeRemainingColumn()]
            self._bar = Progress(
                *columns, console=Console(stderr=True), transient=True, auto_refresh=False
            )
            self._task = self._bar.add_task(self._label, total=self._total)
            self._bar.start()
        if self._task is not None:
            done = self._position() if self._position else self.records
            rate = self.records / self.elapsed_s
            text = f"{self._label} {self.records:,} ({human_bytes(self.size_bytes)}, {rate:,.0f}/s)"
            self._bar.update(self._task, completed=done, description=text, refresh=True)
        self._drawn = time.monotonic()
