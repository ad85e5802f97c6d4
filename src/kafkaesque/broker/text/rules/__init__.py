"""The text protocol of document 001 (PUBS, SUBS, CONS) as rules: lines in, values out. No I/O."""
