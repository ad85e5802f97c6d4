"""The console: rules, decoders, access, and a real console on a real broker and browser."""
