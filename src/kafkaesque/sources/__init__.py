"""Posts by hashtag from social networks into the log (document 003, on the networks of today).

Rules without I/O: `hashtags`, `window`, `backoff`, `cursors`, `frames`, `jetstream`, `mastodon`, `x`,
`intake`, `generator`. Drivers: `streams`, `*_stream`, `pump`. `local/` is a server that speaks all
three wires. docs/SOURCES.md says which guarantee holds where.
"""
