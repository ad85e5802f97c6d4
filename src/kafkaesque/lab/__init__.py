"""Measurements, fault runs and simulation. Nothing in the product imports this package.

`bench` measures beside a floor and other systems, `faults` breaks real processes and checks a
recorded history, `sim` runs the real rules on simulated time, network and disks.
"""
