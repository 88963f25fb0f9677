"""Gradient rules of ops that compute each element by itself."""
