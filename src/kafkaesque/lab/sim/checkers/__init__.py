"""The invariants, one small named class each: research/reliability.md 4.3, docs/SIMULATION.md."""
