"""One module per benchmark; each has `run(options) -> Report`. They do not import each other."""
