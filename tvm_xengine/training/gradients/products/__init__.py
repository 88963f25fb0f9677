"""Gradient rules of products of matrices and tensors."""
