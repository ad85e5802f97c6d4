"""The fault runs, grouped by what they break; `catalog.py` maps their names to the classes."""
