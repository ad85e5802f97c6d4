"""The contract between services: which topics there are and what their records say.

Values and their JSON only. No client, no I/O, no clock; nothing here knows which service writes.
"""
