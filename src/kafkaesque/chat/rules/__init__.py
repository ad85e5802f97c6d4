"""Rules of chat, without I/O: commands are decided into events, and events are folded into state."""
