"""Faults for real: break a running broker under load, record what its clients saw, judge it.

`history` and `checker` (with `checks/`) are rules without I/O: a history in, a verdict out, so a
kept history can be judged again. `workload` and `readers` are the real clients that record one,
`target` is what is broken, `runs/` has one file a fault, and `stage` puts them together.
"""
