"""The invariants, each a small class with a name: research/reliability.md 4.3, docs/SIMULATION.md."""
