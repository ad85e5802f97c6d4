"""Shared by every server process of the platform: clock, event loop, logging, signals, the `ready`
line, child processes, and the status page.

Nothing here depends on a Kafka client, a web framework or the command line. The broker and all
services may import it.
"""
