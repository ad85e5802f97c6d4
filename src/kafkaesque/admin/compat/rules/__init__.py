"""Which features a target of a move lacks. No I/O."""
