"""Training ops as single TE kernels that every device can run."""
