"""The invariants, one small named class each, listed in docs/SIMULATION.md."""
