"""Rules of one partition, without I/O: which batches may be appended, and producer state."""
