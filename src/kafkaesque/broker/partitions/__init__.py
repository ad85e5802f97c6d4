"""The data plane: a partition is a replicated log with rules for what may be appended and read.

`partition` accepts a produced batch, `admission` and `producers` check it, and `replication` writes
it to `storage.log` and replicates it. Consumers see it when the high watermark has passed it.
"""
