"""Merge kernels and updates, with regard to memory."""
