"""Solvers of the scheduling problem; every one returns a `SolveResult`."""
