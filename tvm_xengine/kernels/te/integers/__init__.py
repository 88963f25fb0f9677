"""Kernels on int8 tensors with a scale and a zero point."""
