"""Rules of the pipeline: when a failed query is restarted."""
