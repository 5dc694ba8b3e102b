"""Benchmark suites: ``python -m benchmarks --suite=NAME``."""
