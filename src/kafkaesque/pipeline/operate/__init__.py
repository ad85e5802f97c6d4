"""Operating the queries: run, stop, backfill, replay, maintenance, reports, status and metrics."""
