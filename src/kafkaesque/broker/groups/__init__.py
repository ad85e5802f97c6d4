"""Consumer groups of the classic protocol as rules without I/O: values in, values out.

The one entry is `registry.GroupRegistry`; its requests, answers and effects are in `types`.
Nothing here reads a clock, rolls a die, opens a file or knows the wire.
"""
