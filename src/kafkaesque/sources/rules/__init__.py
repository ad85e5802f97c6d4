"""Rules of the sources, without I/O: parsing, filtering, deduplication, cursors, backoff."""
