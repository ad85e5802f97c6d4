"""Rules of a log, without I/O: leader epochs, and which records compaction keeps."""
