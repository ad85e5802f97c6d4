"""One file a fault run, each with a class `Run`; `faults/catalog.py` names them."""
