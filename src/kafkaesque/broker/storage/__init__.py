"""The files of one node: partition logs and small durable state.

All calls block; nothing here uses the event loop or depends on topic names, leaders or clients.
"""
