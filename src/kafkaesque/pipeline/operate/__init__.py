"""Running named queries: start, stop between batches, backfill, replay, progress, metrics."""
