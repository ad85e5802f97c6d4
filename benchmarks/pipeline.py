"""Runs the pipeline's benchmark, as `kafkaesque bench pipeline` does.

.venv/bin/python benchmarks/pipeline.py [--rounds 5] [--quick] [--json]
"""

from __future__ import annotations

import sys

from kafkaesque.cli.bench import bench

if __name__ == "__main__":
    bench(["pipeline", *sys.argv[1:]])
