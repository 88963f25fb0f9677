"""Networks for collecting datasets of kernels."""
