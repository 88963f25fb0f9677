"""Preparing kernels for a device: sources, schedules, lowering, compilation, storage."""
