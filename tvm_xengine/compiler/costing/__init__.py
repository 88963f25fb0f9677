"""The costs of kernels and links: measured, predicted or estimated."""
