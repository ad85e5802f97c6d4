"""Consumer groups of the classic protocol as rules without I/O: values in, values out.

The entry point is `registry.GroupRegistry`; its requests, answers and effects are in `types`.
Nothing here reads a clock, draws a random number, opens a file or depends on the wire format.
"""
