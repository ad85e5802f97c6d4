"""Fault runs: break running brokers under load, record what clients saw, and check the record.

`checks/` is pure: a history in, a verdict out, so that a kept history can be checked again. `workload` and
its clients record a history, `runs/` has the faults, `fault_run` executes one of them, `runner` finds it by
name and writes the report.
"""
