"""Datasets of measured kernels with their features."""
