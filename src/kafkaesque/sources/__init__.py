"""Sources: connectors that copy posts by hashtag from social networks into the log.

`connector` is the running source, `reconnect` keeps its streams connected, `streams/` connects to each
network, `networks` is the registry. `rules/` does no I/O: parsing, filtering, deduplication, cursors,
backoff, and the generator of synthetic posts. `local/` is a server of synthetic posts that implements all
three protocols. docs/SOURCES.md lists the guarantees.
"""
