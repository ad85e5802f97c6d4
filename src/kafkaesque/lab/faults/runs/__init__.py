"""One file a fault run, each with a class `Run`; `lab/faults/catalog.py` names them."""
