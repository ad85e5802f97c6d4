"""What the console concludes from what it saw: values in, values out; no I/O, no clock."""
