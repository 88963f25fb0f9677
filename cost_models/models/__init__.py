"""Models that learn from measured kernels, and how they are judged."""
