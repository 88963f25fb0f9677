"""Kernels of optimizers: from a parameter, its state and its gradient to new ones."""
