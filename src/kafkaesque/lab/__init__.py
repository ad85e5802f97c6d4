"""Measurements, fault runs and simulation. Nothing in the product imports this package.

`bench` measures our broker beside a bare server and other systems, `faults` breaks real processes and
checks what their clients recorded, `sim` runs the real code on simulated time, network and disks.
`harness` is what benchmarks and fault runs share.
"""
