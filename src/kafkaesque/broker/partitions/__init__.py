"""The data plane: one partition is a log with rules about who may append and who may see what.

A produced batch comes in through `partition`, is judged by `admission` and `producers`, goes to
`storage.log`, is synced by `flusher`, and becomes visible when the high watermark passes it.
Replication will stand between `partition` and `storage.log`.
"""
