"""Modules, state and memory shared with PyTorch."""
