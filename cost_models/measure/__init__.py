"""Measuring and storing the times of kernels and links."""
