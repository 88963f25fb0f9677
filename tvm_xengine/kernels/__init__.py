"""Kernels made ready for a device: sources, schedules, lowering, compilation, storage."""
