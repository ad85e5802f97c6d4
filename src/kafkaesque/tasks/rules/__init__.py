"""Rules of task processing, without I/O: order per key, retries, due times, progress."""
