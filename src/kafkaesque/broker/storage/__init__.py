"""Files of one node: logs of record batches and small durable state.

Blocking calls, no event loop, and no idea of topics' names, leaders or clients.
"""
