"""Models that learn from measured kernels, and their evaluation."""
