"""Functions of packages in C: whatever they are called with, on every processor."""
