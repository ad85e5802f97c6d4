"""Rules of the social sources, without I/O: parsing, cursors, backoff, deduplication."""
