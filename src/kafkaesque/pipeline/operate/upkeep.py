"""Tables kept in shape: small files merged, what is too old deleted, what no version names vacuumed.

By the report `upkeep` for all tables at once, and by each query for its own tables between two
batches: then nobody else commits to them in the middle.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake.exceptions import DeltaError

from kafkaesque.pipeline.operate.catalog import Table
from kafkaesque.pipeline.operate.context import Context, Knobs
from kafkaesque.pipeline.sinks.delta_table import keep_in_shape, open_table

log = logging.getLogger(__name__)


def is_due(knobs: Knobs, batch: int) -> bool:
    """By the number of the batch, so that a restart neither forgets nor hastens it."""
    every = knobs.upkeep_every_batches
    return every > 0 and batch % every == every - 1


def keep_own_tables(tables: Iterable[Table], context: Context, now: datetime) -> None:
    """Of a query, between two batches. A failure is logged: the rows are there, it is tried again."""
    for table in tables:
        try:
            if open_table(context.table(table.name)) is not None:
                keep_table(context.table(table.name), context.knobs, now)
        except (DeltaError, OSError) as error:
            log.warning("table %s is not kept in shape: %s", table.name, error)


def keep_table(path: Path, knobs: Knobs, now: datetime) -> dict[str, Any]:
    """What was done to one table, as a row of a report."""
    expired = None
    if path.name == "archive" and knobs.archive_keep_days > 0:
        expired = f"date < DATE '{archive_begins(knobs, now)}'"
    done = keep_in_shape(path, expired=expired, keep_hours=knobs.table_keep_hours)
    return {
        "table": path.name,
        "files_before": done.files_before,
        "files_after": done.files_after,
        "files_vacuumed": done.files_removed_from_disk,
        "rows_expired": done.rows_expired,
    }


def archive_begins(knobs: Knobs, now: datetime) -> str:
    """The oldest day that the archive keeps, where it does not keep all."""
    return (now - timedelta(days=knobs.archive_keep_days)).date().isoformat()
