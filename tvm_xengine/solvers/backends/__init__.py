"""Solvers of mathematical programs, one file each, run in worker processes."""
