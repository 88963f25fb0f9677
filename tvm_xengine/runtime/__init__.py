"""Runs compiled training steps in preallocated arenas."""
