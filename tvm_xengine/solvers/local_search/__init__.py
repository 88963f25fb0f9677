"""Compiled local search over decisions to keep, drop, move and recompute tensors."""
