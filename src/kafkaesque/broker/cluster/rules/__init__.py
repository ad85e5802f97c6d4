"""Rules of the control plane, without I/O: requests to commands, commands to tables.

`controller` turns a request into commands, `tables` applies committed commands, and the other
modules decide placement, membership and reassignment.
"""
