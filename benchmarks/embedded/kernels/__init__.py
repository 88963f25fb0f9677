"""Instructions of generated kernels beside kernels written by hand."""
