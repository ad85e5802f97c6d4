"""Plans of administrative changes. No I/O."""
