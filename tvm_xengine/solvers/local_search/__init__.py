"""Compiled local search over what is kept, dropped and moved."""
