"""Shared by benchmarks and fault runs: processes and clusters under test, and measurements of them."""
