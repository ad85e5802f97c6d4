"""The message browser: search, follow, export, produce and replay records, by librdkafka in threads."""
