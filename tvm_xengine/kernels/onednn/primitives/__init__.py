"""Training kernels in terms of oneDNN's primitives, one file for each kind."""
