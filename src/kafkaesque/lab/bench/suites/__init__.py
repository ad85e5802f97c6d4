"""One module a benchmark; each has `run(options) -> Report`. They never import one another."""
