"""Rules of the terminal client, without I/O: the view of the conversations, and keyboard input."""
