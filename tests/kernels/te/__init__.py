"""Kernels as they are written, before any schedule."""
