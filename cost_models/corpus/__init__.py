"""Networks whose kernels a dataset is collected from."""
