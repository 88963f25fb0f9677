"""Kernels that read or write elements at positions known at run time."""
