"""Records: read, searched, followed, exported, written and replayed, by librdkafka in worker threads."""
