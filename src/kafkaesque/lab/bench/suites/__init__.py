"""One module per benchmark; each has `run(options) -> BenchmarkReport`. They do not import each other."""
