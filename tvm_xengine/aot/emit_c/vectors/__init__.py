"""Kernels in vectors of four floats, for Helium."""
