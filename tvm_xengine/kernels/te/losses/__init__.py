"""Losses as single kernels, forward and backward."""
