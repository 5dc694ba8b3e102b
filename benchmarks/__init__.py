"""Benchmark suites, one subject a file: ``python -m benchmarks --suite=NAME``."""
