"""Builds an exported package, runs it here or under emulation, and compares its losses."""
