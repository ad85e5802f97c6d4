"""What is lacking at the target of a move. No I/O."""
