"""Costs of kernels that were not measured."""
