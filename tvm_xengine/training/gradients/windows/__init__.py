"""Gradient rules of ops that slide a window over an image."""
