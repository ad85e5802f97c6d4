"""Rules of the local server, without I/O: when entries appear, and how each network encodes them."""
