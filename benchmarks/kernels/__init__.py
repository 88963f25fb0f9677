"""Single kernels against the libraries and against each other."""
