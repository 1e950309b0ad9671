"""Benchmarks: each module has `measure()`, which returns ratios taken in one run."""
