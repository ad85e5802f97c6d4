"""Shared by every server process of the platform: clock, event loop, logging, signals, the `ready`
line, child processes, the status page, sessions with the coordination service, and the waits between
retries.

Nothing here depends on a Kafka client, a web framework or the command line. The broker and all
services may import it.
"""
