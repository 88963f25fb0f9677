"""Whole networks, checked against PyTorch."""
