"""Packages in C: memory, code and instructions."""
