"""Rules of the tasks, without I/O: calls, outcomes, retries, scheduling, offsets."""
