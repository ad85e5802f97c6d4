"""The contract between services: their topics, and the values of the records in them.

Only values and their JSON: no client, no I/O, no clock, and no dependency on any service.
"""
