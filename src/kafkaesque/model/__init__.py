"""Values and vocabulary of the whole system. Standard library only; no I/O, no clock, no chance."""
