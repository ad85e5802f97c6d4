"""Rules of the pipeline, without I/O: offsets of a batch, and when a failed query is restarted."""
