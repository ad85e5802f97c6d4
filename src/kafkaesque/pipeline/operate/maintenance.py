"""Table maintenance: merges small files, deletes expired rows, vacuums unreferenced files.

The report `upkeep` maintains all tables at once. Each query also maintains its own tables between
two batches, when nothing else commits to them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
from kafkaesque.pipeline.operate.queries import Table
from kafkaesque.pipeline.sinks.delta_table import maintain, open_table

log = logging.getLogger(__name__)


def is_due(settings: PipelineSettings, batch: int) -> bool:
    """Depends only on the batch number, so that a restart neither skips nor repeats maintenance."""
    every = settings.upkeep_every_batches
    return every > 0 and batch % every == every - 1


def maintain_query_tables(tables: Iterable[Table], context: PipelineContext, now: datetime) -> None:
    """Maintains the tables of one query. A failure is only logged: the rows are committed, and the
    next maintenance tries again."""
    for table in tables:
        try:
            if open_table(context.table(table.name)) is not None:
                maintain_table(context.table(table.name), context.settings, now)
        except (DeltaError, OSError) as error:
            log.warning("maintenance of table %s failed: %s", table.name, error)


def maintain_table(path: Path, settings: PipelineSettings, now: datetime) -> dict[str, Any]:
    """Maintains one table and returns what was done as a row of the report."""
    expired = None
    if path.name == "archive" and settings.archive_keep_days > 0:
        expired = f"date < DATE '{archive_start(settings, now)}'"
    done = maintain(path, expired=expired, keep_hours=settings.table_keep_hours)
    return {
        "table": path.name,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "files_vacuumed": done.files_removed_from_disk,
        "rows_expired": done.rows_expired,
    }


def archive_start(settings: PipelineSettings, now: datetime) -> str:
    """The oldest day that the archive keeps under `archive.keep.days`."""
    return (now - timedelta(days=settings.archive_keep_days)).date().isoformat()
