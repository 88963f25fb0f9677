"""Measured kernels with their features: what cost models learn from."""
