"""Normalisations as single kernels, forward and backward."""
