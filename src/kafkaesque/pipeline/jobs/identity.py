"""The headers by which a record that the pipeline wrote says what it is. Names only."""

from __future__ import annotations

from typing import Final

QUERY_HEADER: Final = "kafkaesque-query"
"""Query and checkpoint: `NAME/ID`."""
BATCH_HEADER: Final = "kafkaesque-batch"
ROW_HEADER: Final = "kafkaesque-row"
"""Place in the batch: `TASK/NUMBER`."""
