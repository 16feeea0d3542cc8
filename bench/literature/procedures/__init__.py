"""Stored procedures of the benchmarks; the driver deploys these files."""
