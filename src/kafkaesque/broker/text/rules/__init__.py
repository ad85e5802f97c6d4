"""The text protocol (PUBS, SUBS, CONS) as rules: lines in, values out. No I/O."""
