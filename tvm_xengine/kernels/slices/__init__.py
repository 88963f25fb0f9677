"""Kernels that compute a slice of their results: a part of the batch, one after the other."""
